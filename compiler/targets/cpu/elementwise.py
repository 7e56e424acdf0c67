"""One rule per elementwise operation: operands of one lane count in, result out.

f32 and f64 are computed as they are. f16, bf16 and f8 are computed in f32 and rounded after each operation.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Op
from ...ir.rules import RuleSet
from ...ir.types import Pointer, Scalar
from ...llvm import maths
from ...llvm.typed import Emitter, Typed, constant
from ...tile import elementwise as ops
from .chunk import llvm_element, memory_element
from .formats import (
    convert_float,
    float_to_integer,
    fma_narrow,
    integer_to_float,
    is_narrow,
    narrow,
    widen,
)

Rule = Callable[..., Typed]  # (Emitter, op, *operands) -> result

rules: RuleSet[Rule] = RuleSet("cpu")


def _scalar(op: Op) -> Scalar:
    return op.operands[0].type.scalar


def _in_float(e: Emitter, elem: Scalar, compute: Callable[..., Typed], *operands: Typed) -> Typed:
    """Compute on wide values and round the result to ``elem``."""
    return narrow(e, compute(*(widen(e, x, elem) for x in operands)), elem)


# Arithmetic ----------------------------------------------------------------------------------------------------


@rules(ops.Add, ops.Sub, ops.Mul)
def arithmetic(e: Emitter, op: Op, x: Typed, y: Typed) -> Typed:
    """Integers wrap; see _in_float for formats below 32 bits."""
    opcode, elem = op.mnemonic, _scalar(op)
    if elem.is_float:
        return _in_float(e, elem, lambda a, b: e.floating(f"f{opcode}", a, b), x, y)
    return e.binary(opcode, x, y)


@rules(ops.Div)
def div(e: Emitter, op: Op, x: Typed, y: Typed) -> Typed:
    return _in_float(e, _scalar(op), lambda a, b: e.floating("fdiv", a, b), x, y)


@rules(ops.Fma)
def fma(e: Emitter, op: Op, x: Typed, y: Typed, z: Typed) -> Typed:
    elem = _scalar(op)
    if is_narrow(elem):
        wide = widen(e, x, elem), widen(e, y, elem), widen(e, z, elem)
        return fma_narrow(e, *wide, elem)
    return e.fma(x, y, z)


@rules(ops.Neg)
def neg(e: Emitter, op: Op, x: Typed) -> Typed:
    elem = _scalar(op)
    if elem.is_float:
        return _in_float(e, elem, e.fneg, x)
    return e.binary("sub", constant(x.type, 0), x)


@rules(ops.Abs)
def absolute(e: Emitter, op: Op, x: Typed) -> Typed:
    """The most negative integer stays as it is; unsigned ones are their own."""
    elem = _scalar(op)
    if elem.is_float:
        return _in_float(e, elem, lambda a: e.intrinsic("fabs", a), x)
    if not elem.is_signed:
        return x
    return e.intrinsic("abs", x, extra=[Typed("i1", "false")])


@rules(ops.Not)
def invert(e: Emitter, op: Op, x: Typed) -> Typed:
    return e.binary("xor", x, constant(x.type, 1 if x.element == "i1" else -1))


@rules(ops.And, ops.Or, ops.Xor)
def bitwise(e: Emitter, op: Op, x: Typed, y: Typed) -> Typed:
    return e.binary(op.mnemonic, x, y)


@rules(ops.Shl, ops.Shr)
def shift(e: Emitter, op: Op, x: Typed, y: Typed) -> Typed:
    """Amounts of the width or more, which are poison in LLVM, shift everything out: 0, or the sign. So do GPUs, and the
    interpreter; there is one instruction of AVX2 for it."""
    elem = _scalar(op)
    if isinstance(op, ops.Shr) and elem.is_signed:
        return e.binary("ashr", x, e.intrinsic("umin", y, constant(y.type, elem.bits - 1)))
    shifted = e.binary("shl" if isinstance(op, ops.Shl) else "lshr", x, y)
    return e.select(e.compare("ult", y, constant(y.type, elem.bits)), shifted, constant(x.type, 0))


@rules(ops.IntDiv, ops.Rem)
def divide(e: Emitter, op: Op, x: Typed, y: Typed) -> Typed:
    """Integers: all bits of x / 0 and x % 0 are set, as on GPUs, the minimum / -1 wraps; nothing traps. Floats: C's
    fmod."""
    elem, remainder = _scalar(op), isinstance(op, ops.Rem)
    if elem.is_float:
        return _in_float(e, elem, lambda a, b: e.floating("frem", a, b), x, y)
    # The processor traps on division by zero and on the overflow of minimum / -1; a masked-off lane must not.
    by_zero = e.compare("eq", y, constant(y.type, 0))
    y = e.select(by_zero, constant(y.type, 1), y)
    made = _remainder(e, elem, x, y) if remainder else _quotient(e, elem, x, y)
    return e.select(by_zero, constant(y.type, -1), made)


def _remainder(e: Emitter, elem: Scalar, x: Typed, y: Typed) -> Typed:
    if x.lanes and elem.bits <= 32:
        return e.binary("sub", x, e.binary("mul", _divide_by_double(e, elem, x, y), y))
    if not elem.is_signed:
        return e.binary("urem", x, y)
    minus = e.compare("eq", y, constant(y.type, -1))
    return e.binary("srem", x, e.select(minus, constant(y.type, 1), y))  # x % -1 is 0 too


def _quotient(e: Emitter, elem: Scalar, x: Typed, y: Typed) -> Typed:
    if x.lanes and elem.bits <= 32:
        return _divide_by_double(e, elem, x, y)
    if not elem.is_signed:
        return e.binary("udiv", x, y)
    minus = e.compare("eq", y, constant(y.type, -1))
    quotient = e.binary("sdiv", x, e.select(minus, constant(y.type, 1), y))
    return e.select(minus, e.binary("sub", constant(x.type, 0), x), quotient)


def _divide_by_double(e: Emitter, elem: Scalar, x: Typed, y: Typed) -> Typed:
    # The quotient of 32-bit integers, rounded to f64 and truncated, is exact; vector integer division does not exist.
    opcode = "sitofp" if elem.is_signed else "uitofp"
    ratio = e.floating("fdiv", e.cast(opcode, x, "double"), e.cast(opcode, y, "double"))
    return e.cast("trunc", e.cast("fptosi", ratio, "i64"), x.element)


@rules(ops.MulHigh)
def mul_high(e: Emitter, op: Op, x: Typed, y: Typed) -> Typed:
    """By a product of twice the width."""
    elem = _scalar(op)
    extend, double = ("sext" if elem.is_signed else "zext"), f"i{2 * elem.bits}"
    product = e.binary("mul", e.cast(extend, x, double), e.cast(extend, y, double))
    upper = e.binary("lshr", product, constant(product.type, elem.bits))
    return e.cast("trunc", upper, x.element)


@rules(ops.Min, ops.Max)
def extremum(e: Emitter, op: ops.Min | ops.Max, x: Typed, y: Typed, *, tells_zeros: bool = True) -> Typed:
    """Floats as IEEE 754-2019 minimum and maximum if NaN shall propagate, else minimumNumber and maximumNumber; unless
    ``tells_zeros`` either zero will do, which takes half of the instructions."""
    elem, word = _scalar(op), op.mnemonic
    if elem.is_float:
        name = f"{word}imum" if op.propagate_nan else f"{word}imumnum" if tells_zeros else f"{word}num"
        return _in_float(e, elem, lambda a, b: e.intrinsic(name, a, b), x, y)
    if elem.bits == 1:
        return e.binary("and" if word == "min" else "or", x, y)
    return e.intrinsic(("s" if elem.is_signed else "u") + word, x, y)


# Comparison and choice -----------------------------------------------------------------------------------------

_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


@rules(ops.Compare)
def compare(e: Emitter, op: ops.Compare, x: Typed, y: Typed) -> Typed:
    """Floats compare ordered except ``ne``, which is true for NaN; pointers as unsigned integers."""
    elem = op.lhs.type.elem
    if isinstance(elem, Scalar) and elem.is_float:
        return e.compare(_FLOAT_PREDICATES[op.predicate], widen(e, x, elem), widen(e, y, elem))
    if op.predicate in ("eq", "ne"):
        return e.compare(op.predicate, x, y)
    signed = isinstance(elem, Scalar) and elem.is_signed
    return e.compare(("s" if signed else "u") + op.predicate, x, y)


@rules(ops.Select)
def select(e: Emitter, op: Op, condition: Typed, x: Typed, y: Typed) -> Typed:
    return e.select(condition, x, y)


# Conversion ----------------------------------------------------------------------------------------------------


@rules(ops.Cast)
def cast(e: Emitter, op: ops.Cast, x: Typed) -> Typed:
    """Float to float and to integer as in formats.py; integers wrap or are extended by their own sign."""
    source, to = op.x.type.scalar, op.to
    if isinstance(to, Pointer) or source == to:  # the op does not allow pointers
        return x
    if source.is_float and to.is_float:
        return convert_float(e, x, source, to, op.rounding)
    if source.is_float:
        return float_to_integer(e, x, source, to)
    if to.is_float:
        return integer_to_float(e, x, source, to)
    if to.bits == 1:
        return e.compare("ne", x, constant(x.type, 0))
    if to.bits <= source.bits:
        return e.cast("trunc", x, f"i{to.bits}")
    return e.cast("sext" if source.is_signed else "zext", x, f"i{to.bits}")


@rules(ops.Bitcast)
def bitcast(e: Emitter, op: ops.Bitcast, x: Typed) -> Typed:
    to = llvm_element(op.to)
    if "ptr" in (to, x.element) and to != x.element:
        return e.cast("inttoptr" if to == "ptr" else "ptrtoint", x, to)
    return e.cast("bitcast", x, to)


@rules(ops.AddPtr)
def addptr(e: Emitter, op: ops.AddPtr, pointer: Typed, count: Typed) -> Typed:
    """The offset is extended to 64 bits by its own sign and counts elements as they lie in memory."""
    wide = extend_offset(e, op.offset.type.scalar, count)
    return e.offset(pointer, wide, memory_element(op.pointer.type.pointee))


def extend_offset(e: Emitter, elem: Scalar, count: Typed) -> Typed:
    """An element offset as i64."""
    return e.cast("sext" if elem.is_signed else "zext", count, "i64")


@rules(ops.Hint)
def hint(e: Emitter, op: Op, x: Typed) -> Typed:
    """Nothing to compute: axis analysis has read the promise."""
    return x


# Functions -----------------------------------------------------------------------------------------------------

_INTRINSICS = {"floor": "floor", "ceil": "ceil", "round_even": "roundeven", "trunc": "trunc"}


@rules(ops.Floor, ops.Ceil, ops.RoundEven, ops.Trunc)
def rounding(e: Emitter, op: Op, x: Typed) -> Typed:
    name = _INTRINSICS[op.mnemonic]
    return _in_float(e, _scalar(op), lambda a: e.intrinsic(name, a), x)


@rules(ops.Sqrt)
def sqrt(e: Emitter, op: Op, x: Typed) -> Typed:
    return _in_float(e, _scalar(op), lambda a: e.intrinsic("sqrt", a), x)


@rules(ops.Reciprocal)
def reciprocal(e: Emitter, op: Op, x: Typed) -> Typed:
    return _in_float(e, _scalar(op), lambda a: e.floating("fdiv", constant(a.type, 1.0), a), x)


@rules(ops.Rsqrt)
def rsqrt(e: Emitter, op: Op, x: Typed) -> Typed:
    def compute(a: Typed) -> Typed:
        return e.floating("fdiv", constant(a.type, 1.0), e.intrinsic("sqrt", a))

    return _in_float(e, _scalar(op), compute, x)


@rules(
    *(ops.Exp, ops.Exp2, ops.Exp10, ops.Log, ops.Log2, ops.Log10, ops.Sin, ops.Cos, ops.Tan, ops.Atan, ops.Tanh),
    *(ops.Erf, ops.Pow, ops.Atan2),
)
def function(e: Emitter, op: Op, *operands: Typed) -> Typed:
    return _in_float(e, _scalar(op), lambda *wide: maths.emit(e, op.mnemonic, *wide), *operands)
