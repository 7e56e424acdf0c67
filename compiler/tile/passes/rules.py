"""Algebraic identities on elementwise operations. For floats only those that hold for every bit pattern."""

from __future__ import annotations

from ...ir.core import Value
from ...ir.types import BF16, F16, F32, Scalar
from .. import elementwise as e
from ..matmul import Dot
from ..shape import Permute
from .numbers import evaluate
from .registry import Replacement, Rewriter, rule

#: K of the shortest product of 16-bit floats that tensor cores compute (PTX ISA, "mma", m16n8k16).
_SHORTEST = 16


def constant_of(value: Value) -> int | float | None:
    """The number that fills ``value``, if it is a constant."""
    op = value.op
    return op.value if isinstance(op, e.Constant) else None


def _is(value: Value, number: int) -> bool:
    """Whether ``value`` is the integer or boolean constant ``number``."""
    return not value.type.is_float and constant_of(value) == number


def _is_float(value: Value, number: float) -> bool:
    held = constant_of(value)
    return value.type.is_float and held is not None and repr(held) == repr(number)


def _all_ones(value: Value) -> bool:
    scalar = value.type.scalar
    ones = 1 if scalar.kind == "bool" else -1 if scalar.is_signed else (1 << scalar.bits) - 1
    return _is(value, ones)


def _zero(like: Value) -> e.Constant:
    return e.Constant(0, like.type)


@rule(e.Add, e.Mul, e.And, e.Or, e.Xor)
def constant_right(op: e.Binary, new: Rewriter) -> Replacement:
    """c + x -> x + c, for every commutative operation on integers"""
    if op.lhs.type.is_float or constant_of(op.lhs) is None or constant_of(op.rhs) is not None:
        return None
    return new(type(op)(op.rhs, op.lhs))


@rule(e.Add, e.Sub, e.Or, e.Xor, e.Shl, e.Shr)
def zero_right(op: e.Binary, new: Rewriter) -> Replacement:
    """x + 0 -> x, and so for - | ^ << >>, on integers"""
    return op.lhs if _is(op.rhs, 0) else None


@rule(e.Mul, e.IntDiv)
def one_right(op: e.Binary, new: Rewriter) -> Replacement:
    """x * 1 -> x, x // 1 -> x, on integers"""
    return op.lhs if _is(op.rhs, 1) else None


@rule(e.Mul, e.And)
def zero_absorbs(op: e.Binary, new: Rewriter) -> Replacement:
    """x * 0 -> 0, x & 0 -> 0, on integers"""
    return op.rhs if _is(op.rhs, 0) else None


@rule(e.Rem)
def rem_by_one(op: e.Rem, new: Rewriter) -> Replacement:
    """x % 1 -> 0, on integers"""
    return new(_zero(op.lhs)) if _is(op.rhs, 1) else None


@rule(e.And)
def ones_right(op: e.And, new: Rewriter) -> Replacement:
    """x & ~0 -> x"""
    return op.lhs if _all_ones(op.rhs) else None


@rule(e.Or)
def ones_absorb(op: e.Or, new: Rewriter) -> Replacement:
    """x | ~0 -> ~0"""
    return op.rhs if _all_ones(op.rhs) else None


@rule(e.And, e.Or)
def same_operands(op: e.Binary, new: Rewriter) -> Replacement:
    """x & x -> x, x | x -> x"""
    return op.lhs if op.lhs is op.rhs else None


@rule(e.Min, e.Max)
def same_extremes(op: e.Min | e.Max, new: Rewriter) -> Replacement:
    """min(x, x) -> x, max(x, x) -> x, on integers"""
    return op.lhs if op.lhs is op.rhs and op.lhs.type.is_integer else None


@rule(e.Sub, e.Xor)
def cancel(op: e.Binary, new: Rewriter) -> Replacement:
    """x - x -> 0, x ^ x -> 0, on integers"""
    return new(_zero(op.lhs)) if op.lhs is op.rhs and op.lhs.type.is_integer else None


@rule(e.Add, e.Mul, e.And, e.Or, e.Xor)
def reassociate(op: e.Binary, new: Rewriter) -> Replacement:
    """(x + a) + b -> x + (a + b) for constants a, b, and so for * & | ^, on integers"""
    inner = op.lhs.op
    if not isinstance(inner, type(op)) or op.lhs.type.is_float:
        return None
    a, b = constant_of(inner.rhs), constant_of(op.rhs)
    if a is None or b is None:
        return None
    both = evaluate(op, [a, b])
    return None if both is None else new(type(op)(inner.lhs, new(e.Constant(both, op.rhs.type))))


@rule(e.Add, e.Sub)
def add_up_constants(op: e.Binary, new: Rewriter) -> Replacement:
    """(x + a) - b -> x + (a - b) for constants a, b, and so where both or the first are subtracted, on integers; where
    the sum is less than zero it is subtracted"""
    inner = op.lhs.op
    if not isinstance(inner, e.Add | e.Sub) or not op.lhs.type.is_integer:
        return None
    a, b = constant_of(inner.rhs), constant_of(op.rhs)
    if a is None or b is None or isinstance(inner, e.Add) and isinstance(op, e.Add):
        return None
    total = (int(a) if isinstance(inner, e.Add) else -int(a)) + (int(b) if isinstance(op, e.Add) else -int(b))
    if op.rhs.type.scalar.wrap(abs(total)) != abs(total):
        return None
    kind = e.Add if total >= 0 else e.Sub
    return new(kind(inner.lhs, new(e.Constant(abs(total), op.rhs.type))))


@rule(e.Mul)
def mul_one(op: e.Mul, new: Rewriter) -> Replacement:
    """x * 1.0 -> x, 1.0 * x -> x"""
    if _is_float(op.rhs, 1.0):
        return op.lhs
    return op.rhs if _is_float(op.lhs, 1.0) else None


@rule(e.Div)
def div_one(op: e.Div, new: Rewriter) -> Replacement:
    """x / 1.0 -> x"""
    return op.lhs if _is_float(op.rhs, 1.0) else None


@rule(e.Pow)
def small_power(op: e.Pow, new: Rewriter) -> Replacement:
    """pow(x, 1.0) -> x, pow(x, 2.0) -> x * x, and of f32 and f64 also the third and fourth power as two products, which
    round once more"""
    if _is_float(op.rhs, 1.0):
        return op.lhs
    wide = op.lhs.type.scalar.bits >= 32
    exponent = next((n for n in (2.0, *((3.0, 4.0) if wide else ())) if _is_float(op.rhs, n)), None)
    if exponent is None:
        return None
    square = new(e.Mul(op.lhs, op.lhs))
    return square if exponent == 2.0 else new(e.Mul(square, op.lhs if exponent == 3.0 else square))


@rule(e.Sub)
def sub_zero(op: e.Sub, new: Rewriter) -> Replacement:
    """x - 0.0 -> x (also for x = -0.0, unlike x + 0.0)"""
    return op.lhs if _is_float(op.rhs, 0.0) else None


@rule(e.Add)
def add_negative_zero(op: e.Add, new: Rewriter) -> Replacement:
    """x + -0.0 -> x"""
    return op.lhs if _is_float(op.rhs, -0.0) else None


@rule(e.Add)
def dot_accumulates(op: e.Add, new: Rewriter) -> Replacement:
    """dot(a, b, 0) + c -> dot(a, b, c), if nothing else reads the dot (the order of a dot's sum is open)"""
    for product, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        dot = product.op
        if isinstance(dot, Dot) and constant_of(dot.acc) == 0 and new.uses(product) == 1:
            return new(Dot(dot.a, dot.b, other, dot.precision))
    return None


@rule(Dot)
def dot_of_widened(op: Dot, new: Rewriter) -> Replacement:
    """dot(float32(a), float32(b), c) -> dot(a, b, c) for a and b of one type of 16 bits: products are exact either way.
    Not where they are too short for a product of these by tensor cores, nor where IEEE 754 is asked for: only products
    in f32 add up as that says."""
    if op.precision == "ieee" or op.a.type.elem != F32 or op.a.type.shape[1] < _SHORTEST:
        return None
    a, b = _before_widening(op.a), _before_widening(op.b)
    if a is None or b is None or a.type.elem != b.type.elem:
        return None
    return new(Dot(_as_it_lies(op.a, a, new), _as_it_lies(op.b, b, new), op.acc, op.precision))


def _as_it_lies(operand: Value, narrow: Value, new: Rewriter) -> Value:
    """``narrow``, transposed where ``operand`` is what that became."""
    return new(Permute(narrow, operand.op.order)) if isinstance(operand.op, Permute) else narrow


def _before_widening(operand: Value) -> Value | None:
    """What ``operand``, or what it is the transpose of, was cast from, if that is a float of 16 bits."""
    inner = operand.op.x.op if isinstance(operand.op, Permute) else operand.op
    return inner.x if isinstance(inner, e.Cast) and inner.x.type.elem in (F16, BF16) else None


@rule(e.Neg, e.Not)
def involution(op: e.Unary, new: Rewriter) -> Replacement:
    """-(-x) -> x, ~(~x) -> x"""
    inner = op.x.op
    return inner.x if isinstance(inner, e.Neg | e.Not) and type(inner) is type(op) else None


@rule(e.Not)
def not_compare(op: e.Not, new: Rewriter) -> Replacement:
    """not (x < y) -> x >= y, on integers and pointers"""
    inner = op.x.op
    if not isinstance(inner, e.Compare) or inner.lhs.type.is_float:
        return None
    opposite = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
    return new(e.Compare(inner.lhs, inner.rhs, opposite[inner.predicate]))


@rule(e.Compare)
def compare_same(op: e.Compare, new: Rewriter) -> Replacement:
    """x <= x -> true, x < x -> false, on integers and pointers"""
    if op.lhs is not op.rhs or op.lhs.type.is_float:
        return None
    return new(e.Constant(op.predicate in ("eq", "le", "ge"), op.result.type))


@rule(e.Select)
def select_constant(op: e.Select, new: Rewriter) -> Replacement:
    """select(true, x, y) -> x, select(false, x, y) -> y"""
    which = constant_of(op.condition)
    return None if which is None else op.on_true if which else op.on_false


@rule(e.Select)
def select_same(op: e.Select, new: Rewriter) -> Replacement:
    """select(c, x, x) -> x"""
    return op.on_true if op.on_true is op.on_false else None


@rule(e.Select)
def select_boolean(op: e.Select, new: Rewriter) -> Replacement:
    """select(c, true, false) -> c"""
    if op.result.type != op.condition.type:
        return None
    return op.condition if _is(op.on_true, 1) and _is(op.on_false, 0) else None


@rule(e.Select)
def select_not(op: e.Select, new: Rewriter) -> Replacement:
    """select(not c, x, y) -> select(c, y, x)"""
    inner = op.condition.op
    if not isinstance(inner, e.Not):
        return None
    return new(e.Select(inner.x, op.on_false, op.on_true))


@rule(e.Cast)
def cast_nothing(op: e.Cast, new: Rewriter) -> Replacement:
    """cast(x: T -> T) -> x"""
    return op.x if op.x.type.elem == op.to else None


@rule(e.Cast)
def cast_chain(op: e.Cast, new: Rewriter) -> Replacement:
    """cast(cast(x: A -> B) -> C) -> cast(x: A -> C), if B holds every value of A"""
    inner = op.x.op
    if not isinstance(inner, e.Cast) or not isinstance(op.to, Scalar):
        return None
    source, middle = inner.x.type.scalar, op.x.type.scalar
    if not _holds(middle, source):
        return None
    return new(e.Cast(inner.x, op.to, op.rounding))


_EXPONENT_BITS = {"f64": 11, "f32": 8, "bf16": 8, "f16": 5, "f8e5m2": 5, "f8e4m3": 4}


def _holds(wide: Scalar, narrow: Scalar) -> bool:
    """Whether every value of ``narrow`` is one of ``wide``."""
    if wide.is_float != narrow.is_float:
        return False
    if wide.is_float:
        exponents = _EXPONENT_BITS[wide.code] - _EXPONENT_BITS[narrow.code]
        return exponents >= 0 and wide.bits - narrow.bits >= exponents
    if narrow.kind == wide.kind:
        return wide.bits >= narrow.bits
    return wide.bits > narrow.bits and not narrow.is_signed and wide.kind != "bool"


@rule(e.Bitcast)
def bitcast_nothing(op: e.Bitcast, new: Rewriter) -> Replacement:
    """bitcast(x: T -> T) -> x"""
    return op.x if op.x.type.elem == op.to else None


@rule(e.Bitcast)
def bitcast_chain(op: e.Bitcast, new: Rewriter) -> Replacement:
    """bitcast(bitcast(x)) -> bitcast(x)"""
    inner = op.x.op
    return new(e.Bitcast(inner.x, op.to)) if isinstance(inner, e.Bitcast) else None


@rule(e.AddPtr)
def addptr_zero(op: e.AddPtr, new: Rewriter) -> Replacement:
    """p + 0 -> p"""
    return op.pointer if _is(op.offset, 0) else None
