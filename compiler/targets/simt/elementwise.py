"""Operations on one element at a time: mostly one LLVM instruction each.

Mathematical functions are the target's approximations where they are good, templates elsewhere. Those of f16 and bf16
are computed in f32, and no bitcode library is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...errors import UnsupportedOp
from ...ir.core import Op, Value
from ...ir.types import F32, F64, I1, Scalar
from ...llvm import maths as templates
from ...llvm.powers import LOG2_E as LOG2_E_PAIR
from ...llvm.reals import F32 as SINGLE
from ...llvm.typed import Emitter, Typed
from ...tile import elementwise as ew
from .casts import convert
from .lowering import Lowering, element_rule, elementwise, lower_elementwise, rule
from .registers import memory_type, register_type

LOG2_E = 1 / math.log(2)
# log2(e) as a sum of two f32, and the smallest and largest powers of two that f32 has as normal numbers.
LOG2_E_HIGH, LOG2_E_LOW = SINGLE.split(*LOG2_E_PAIR)
LEAST_POWER, GREATEST_POWER = -126, 127
# Added to a number of this range it leaves an integer, plus the bias of f32's exponent, in the lowest bits.
ROUNDING = float(3 << 22) + 127

_OVERLOAD = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}


def kind_of(state: Lowering, value: Value) -> tuple[Scalar, str]:
    """Element type of ``value`` and its LLVM spelling; refuses types that only exist in memory."""
    scalar = value.type.scalar
    name = register_type(scalar)
    if scalar.is_float and name == "i8":
        raise UnsupportedOp(
            f"there is no arithmetic in {scalar.code} on {state.machine.name}", hint="cast to tl.float16 or tl.float32"
        )
    return scalar, name


def intrinsic(state: Lowering, name: str, type: str, *operands: str) -> str:
    """Call ``llvm.name`` overloaded on ``type``, all operands and the result being of it."""
    full = f"llvm.{name}.{_OVERLOAD.get(type, type)}"
    return state.text.call(type, full, [(type, o) for o in operands])


@rule(ew.Constant)
def _constant(state: Lowering, op: ew.Constant) -> None:
    state.define(op.result, [state.constant(op.type.elem, op.value)] * _count(op))


def _count(op: Op) -> int:
    layout = op.result.type.layout
    return layout.registers if layout is not None else 1


@elementwise(ew.Neg)
def _neg(state: Lowering, op: ew.Neg, args: list[str]) -> str:
    scalar, name = kind_of(state, op.x)
    return state.text.op(f"fneg {name} {args[0]}" if scalar.is_float else f"sub {name} 0, {args[0]}")


@elementwise(ew.Not)
def _not(state: Lowering, op: ew.Not, args: list[str]) -> str:
    scalar, name = kind_of(state, op.x)
    return state.text.op(f"xor {name} {args[0]}, {'true' if scalar == I1 else '-1'}")


@elementwise(ew.Abs)
def _abs(state: Lowering, op: ew.Abs, args: list[str]) -> str:
    scalar, name = kind_of(state, op.x)
    if scalar.is_float:
        return intrinsic(state, "fabs", name, args[0])
    if not scalar.is_signed:
        return args[0]
    return state.text.call(name, f"llvm.abs.{name}", [(name, args[0]), ("i1", "false")])


def _register_arithmetic(kind: type[ew.Binary], floating: str, integer: str) -> None:
    @elementwise(kind)
    def lower(state: Lowering, op: ew.Binary, args: list[str]) -> str:
        scalar, name = kind_of(state, op.lhs)
        opcode = f"{floating} {state.contract}" if scalar.is_float else f"{integer} "
        return state.text.op(f"{opcode}{name} {args[0]}, {args[1]}")


_register_arithmetic(ew.Add, "fadd", "add")
_register_arithmetic(ew.Sub, "fsub", "sub")
_register_arithmetic(ew.Mul, "fmul", "mul")


def _register_bitwise(kind: type[ew.IntegerBinary], signed: str, unsigned: str) -> None:
    @elementwise(kind)
    def lower(state: Lowering, op: ew.IntegerBinary, args: list[str]) -> str:
        scalar, name = kind_of(state, op.lhs)
        opcode = signed if scalar.is_signed else unsigned
        return state.text.op(f"{opcode} {name} {args[0]}, {args[1]}")


_register_bitwise(ew.And, "and", "and")
_register_bitwise(ew.Or, "or", "or")
_register_bitwise(ew.Xor, "xor", "xor")
_register_bitwise(ew.Shl, "shl", "shl")
_register_bitwise(ew.Shr, "ashr", "lshr")


@elementwise(ew.MulHigh)
def _mul_high(state: Lowering, op: ew.MulHigh, args: list[str]) -> str:
    scalar, name = kind_of(state, op.lhs)
    wide = f"i{2 * scalar.bits}"
    extend = "sext" if scalar.is_signed else "zext"
    x, y = (state.text.op(f"{extend} {name} {a} to {wide}") for a in args)
    product = state.text.op(f"mul {wide} {x}, {y}")
    high = state.text.op(f"lshr {wide} {product}, {scalar.bits}")
    return state.text.op(f"trunc {wide} {high} to {name}")


def _register_extremum(kind: type[ew.Min] | type[ew.Max], word: str, boolean: str) -> None:
    @elementwise(kind)
    def lower(state: Lowering, op: ew.Min | ew.Max, args: list[str]) -> str:
        scalar, name = kind_of(state, op.lhs)
        if scalar == I1:
            return state.text.op(f"{boolean} i1 {args[0]}, {args[1]}")
        if not scalar.is_float:
            sign = "s" if scalar.is_signed else "u"
            return intrinsic(state, f"{sign}{word}", name, *args)
        if not op.propagate_nan:
            return intrinsic(state, f"{word}num", name, *args)
        if scalar != F64:
            return intrinsic(state, f"{word}imum", name, *args)
        # Hardware has no NaN-propagating min and max of f64.
        nan = state.text.op(f"fcmp uno double {args[0]}, {args[1]}")
        total = state.text.op(f"fadd double {args[0]}, {args[1]}")
        best = intrinsic(state, f"{word}num", name, *args)
        return state.text.op(f"select i1 {nan}, double {total}, double {best}")


_register_extremum(ew.Min, "min", "and")
_register_extremum(ew.Max, "max", "or")

_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


@elementwise(ew.Compare)
def _compare(state: Lowering, op: ew.Compare, args: list[str]) -> str:
    name = register_type(op.lhs.type.elem)
    predicate = op.predicate
    if op.lhs.type.is_float:
        kind_of(state, op.lhs)
        return state.text.op(f"fcmp {_FLOAT_PREDICATES[predicate]} {name} {args[0]}, {args[1]}")
    if predicate not in ("eq", "ne"):
        elem = op.lhs.type.elem
        signed = isinstance(elem, Scalar) and elem.is_signed
        predicate = ("s" if signed else "u") + predicate
    return state.text.op(f"icmp {predicate} {name} {args[0]}, {args[1]}")


@element_rule(ew.Select)
def _select(state: Lowering, op: ew.Select, args: list[str]) -> str:
    name = register_type(op.on_true.type.elem)
    return state.text.op(f"select i1 {args[0]}, {name} {args[1]}, {name} {args[2]}")


@rule(ew.Select)
def _select_tile(state: Lowering, op: ew.Select) -> None:
    pair = _pair_of_extrema(op)
    if pair is None:
        lower_elementwise(state, op)
        return
    # There is no minimum of 64 bits: either extremum is a comparison and a selection, and so is the choice of both.
    operands = [state.values[v] for v in (op.condition, *pair)]
    larger = isinstance(op.on_true.op, ew.Max)

    def exchanged(i: int) -> str:
        condition, x, y = (o[i] for o in operands)
        order = "slt" if pair[0].type.scalar.is_signed else "ult"
        other = state.text.op(f"xor i1 {state.text.op(f'icmp {order} i64 {x}, {y}')}, {condition}")
        first, second = (x, y) if larger else (y, x)
        return state.text.op(f"select i1 {other}, i64 {first}, i64 {second}")

    state.define_lazily(op.result, operands, exchanged, state.equal_registers(op.result))


def _pair_of_extrema(op: ew.Select) -> tuple[Value, Value] | None:
    """The integers of 64 bits of which ``op`` takes the larger or the smaller; None where it takes anything else."""
    sides = (op.on_true.op, op.on_false.op)
    match sides:
        case (ew.Max() as one, ew.Min() as two) | (ew.Min() as one, ew.Max() as two):
            scalar = one.lhs.type.scalar
            if not scalar.is_float and scalar.bits == 64 and {one.lhs, one.rhs} == {two.lhs, two.rhs}:
                return one.lhs, one.rhs
    return None


@elementwise(ew.Fma)
def _fma(state: Lowering, op: ew.Fma, args: list[str]) -> str:
    _, name = kind_of(state, op.x)
    return intrinsic(state, "fma", name, *args)


@elementwise(ew.AddPtr)
def _addptr(state: Lowering, op: ew.AddPtr, args: list[str]) -> str:
    scalar = op.offset.type.scalar
    index, name = args[1], register_type(scalar)
    if not scalar.is_signed and scalar.bits < 64:
        # getelementptr would extend the sign of a narrow index.
        index, name = state.text.op(f"zext {name} {index} to i64"), "i64"
    element = memory_type(op.pointer.type.pointee)
    return state.text.op(f"getelementptr {element}, ptr addrspace(1) {args[0]}, {name} {index}")


@elementwise(ew.Hint)
def _hint(state: Lowering, op: ew.Hint, args: list[str]) -> str:
    return args[0]


# Mathematical functions --------------------------------------------------------------------------------------

#: Functions that LLVM turns into one instruction for every float type.
_ROUNDINGS = {ew.Floor: "floor", ew.Ceil: "ceil", ew.Trunc: "trunc", ew.RoundEven: "roundeven"}


def _register_rounding(kind: type[ew.FloatUnary], name: str) -> None:
    @elementwise(kind)
    def lower(state: Lowering, op: ew.FloatUnary, args: list[str]) -> str:
        scalar, type = kind_of(state, op.x)
        if scalar == F64:
            return intrinsic(state, name, type, args[0])
        wide = convert(state, args[0], scalar, F32)
        return convert(state, intrinsic(state, name, "float", wide), F32, scalar)


for _kind, _name in _ROUNDINGS.items():
    _register_rounding(_kind, _name)


def _register(kind: type[ew.FloatUnary], single: Callable[[Lowering, str], str] | None) -> None:
    """``single``: how f32 is computed unless it shall be precise, a function of (state, x); None for the template."""

    @elementwise(kind)
    def lower(state: Lowering, op: ew.FloatUnary, args: list[str]) -> str:
        scalar, _ = kind_of(state, op.x)
        if scalar == F64:
            return _template(state, kind.mnemonic, scalar, args[0])
        x = convert(state, args[0], scalar, F32)
        if isinstance(op, ew.Exp) and op.accuracy == "2 ulp":
            y = _quick_exp(state, x)
        elif single is None or (isinstance(op, ew.Exp) and op.accuracy == "1 ulp"):
            y = _template(state, kind.mnemonic, F32, x)
        else:
            y = single(state, x)
        return convert(state, y, F32, scalar)


class _Hardware:
    """The machine's approximations, for templates."""

    def __init__(self, state: Lowering) -> None:
        self.state = state

    def exp2(self, x: Typed) -> Typed:
        return Typed(x.type, self.state.machine.exp2(self.state, x.name, flush=True))

    def log2(self, x: Typed) -> Typed:
        return Typed(x.type, self.state.machine.log2(self.state, x.name))

    def reciprocal(self, x: Typed) -> Typed:
        return Typed(x.type, self.state.machine.reciprocal(self.state, x.name))


def _template(state: Lowering, name: str, scalar: Scalar, *operands: str) -> str:
    type = "double" if scalar == F64 else "float"
    emitter = Emitter(state.text, contract=True, hardware=_Hardware(state))
    return templates.emit(emitter, name, *(Typed(type, x) for x in operands)).name


def _register_of_two(kind: type[ew.FloatBinary]) -> None:
    @elementwise(kind)
    def lower(state: Lowering, op: ew.FloatBinary, args: list[str]) -> str:
        scalar, _ = kind_of(state, op.lhs)
        wide = F64 if scalar == F64 else F32
        operands = (convert(state, x, scalar, wide) for x in args)
        return convert(state, _template(state, kind.mnemonic, wide, *operands), wide, scalar)


def _exp(state: Lowering, x: str) -> str:
    scaled = state.text.op(f"fmul float {x}, {state.constant(F32, LOG2_E)}")
    return state.machine.exp2(state, scaled, flush=False)


def _quick_exp(state: Lowering, x: str) -> str:
    """2**n 2**f with n the integer below x log2(e), held between the powers that are normal numbers: f is between 0 and
    1 but for results that are denormal, 0 or infinite, which come of its power. Nine instructions and no branch; with
    the nearest integer half of the powers would be below 1, where the same error is twice as many units."""

    def number(value: float) -> str:
        return state.constant(F32, value)

    moved = state.machine.fma_down(state, x, number(LOG2_E_HIGH), number(ROUNDING))
    # Both drop NaN, which x still has in what follows.
    moved = intrinsic(state, "maxnum", "float", moved, number(ROUNDING + LEAST_POWER))
    moved = intrinsic(state, "minnum", "float", moved, number(ROUNDING + GREATEST_POWER))
    n = state.text.op(f"fsub float {moved}, {number(ROUNDING)}")
    f = intrinsic(state, "fma", "float", x, number(LOG2_E_HIGH), state.text.op(f"fneg float {n}"))
    f = intrinsic(state, "fma", "float", x, number(LOG2_E_LOW), f)
    bits = state.text.op(f"shl i32 {state.text.op(f'bitcast float {moved} to i32')}, 23")
    power = state.text.op(f"bitcast i32 {bits} to float")
    return state.text.op(f"fmul float {state.machine.exp2(state, f, flush=True)}, {power}")


# As in Triton: what is written in powers of two, softmax above all, wants the one instruction.
_register(ew.Exp2, lambda state, x: state.machine.exp2(state, x, flush=True))
_register(ew.Exp, _exp)
_register(ew.Log, None)
_register(ew.Log2, None)
_register(ew.Sin, None)
_register(ew.Cos, None)
_register(ew.Tan, None)
_register(ew.Tanh, None)
_register(ew.Erf, None)
_register(ew.Exp10, None)
_register(ew.Log10, None)
_register(ew.Atan, None)
_register_of_two(ew.Pow)
_register_of_two(ew.Atan2)


@elementwise(ew.Sqrt)
def _sqrt(state: Lowering, op: ew.Sqrt, args: list[str]) -> str:
    scalar, _ = kind_of(state, op.x)
    if scalar == F64:
        return intrinsic(state, "sqrt", "double", args[0])
    x = convert(state, args[0], scalar, F32)
    return convert(state, state.machine.sqrt(state, x, op.precise), F32, scalar)


@elementwise(ew.Reciprocal)
def _reciprocal(state: Lowering, op: ew.Reciprocal, args: list[str]) -> str:
    scalar, _ = kind_of(state, op.x)
    if scalar == F64:
        return state.text.op(f"fdiv double {state.constant(F64, 1.0)}, {args[0]}")
    return convert(state, state.machine.reciprocal(state, convert(state, args[0], scalar, F32)), F32, scalar)


@elementwise(ew.Rsqrt)
def _rsqrt(state: Lowering, op: ew.Rsqrt, args: list[str]) -> str:
    scalar, _ = kind_of(state, op.x)
    if scalar == F64:
        root = intrinsic(state, "sqrt", "double", args[0])
        return state.text.op(f"fdiv double {state.constant(F64, 1.0)}, {root}")
    x = convert(state, args[0], scalar, F32)
    return convert(state, state.machine.rsqrt(state, x), F32, scalar)
