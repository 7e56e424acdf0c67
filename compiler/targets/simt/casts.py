"""Conversions between element types."""

from __future__ import annotations

from ...errors import UnsupportedOp
from ...ir.core import Op, Value
from ...ir.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, I1, Pointer, Scalar
from ...tile.elementwise import And, Bitcast, Cast, Compare, Constant, Max, Min, Not, Or, Select
from ...tile.reduction import Reduce
from .lowering import Lowering, element_rule, elementwise
from .registers import register_type

_EIGHT_BIT = (F8E4M3, F8E5M2)


@element_rule(Cast)
def cast_one(state: Lowering, op: Cast, args: list[str]) -> str:
    """One element; :mod:`.widening` has the rule for tiles."""
    source, to = op.x.type.scalar, op.to
    if not isinstance(to, Scalar):
        raise UnsupportedOp("numbers are not cast to pointers", location=op.location)
    if source == BF16 and to == F32 and args[0] in state.halves and not _is_only_compared(state, op.result):
        return _widen_half(state, args[0])
    return convert(state, args[0], source, to, op.rounding)


def convert(state: Lowering, x: str, source: Scalar, to: Scalar, rounding: str = "rtne") -> str:
    """``x`` of type ``source`` as a value of type ``to``."""
    if source == to:
        return x
    if source.is_float and to.is_float:
        return _float_to_float(state, x, source, to, rounding)
    if source.is_float:
        return _float_to_integer(state, x, source, to)
    if to.is_float:
        return _integer_to_float(state, x, source, to)
    name, wanted = register_type(source), register_type(to)
    if to == I1:
        return state.text.op(f"icmp ne {name} {x}, 0")
    if to.bits == source.bits:
        return x
    if to.bits < source.bits:
        return state.text.op(f"trunc {name} {x} to {wanted}")
    return state.text.op(f"{'sext' if source.is_signed else 'zext'} {name} {x} to {wanted}")


def _integer_to_float(state: Lowering, x: str, source: Scalar, to: Scalar) -> str:
    if to not in (F16, F32, F64):
        return convert(state, _integer_to_odd(state, x, source), F32, to)
    opcode = "sitofp" if source.is_signed else "uitofp"
    return state.text.op(f"{opcode} {register_type(source)} {x} to {register_type(to)}")


def _integer_to_odd(state: Lowering, x: str, source: Scalar) -> str:
    """An integer as f32, exactly or rounded to odd."""
    name, sign = register_type(source), "s" if source.is_signed else "u"
    if source.bits < 32:  # exact
        return state.text.op(f"{sign}itofp {name} {x} to float")
    short = state.machine.round_towards_zero(state, x, source, F32)
    back = state.text.op(f"fpto{sign}i float {short} to {name}")
    return _made_odd(state, short, state.text.op(f"icmp ne {name} {back}, {x}"))


def _double_to_odd(state: Lowering, x: str) -> str:
    """f64 as f32, exactly or rounded to odd, so that rounding it again to fewer bits is rounding once."""
    short = _truncate(state, x, F64, F32)
    back = state.text.op(f"fpext float {short} to double")
    return _made_odd(state, short, state.text.op(f"fcmp one double {back}, {x}"))


def _made_odd(state: Lowering, short: str, inexact: str) -> str:
    """``short``, which was rounded towards zero, with its last bit set where that lost something."""
    bits = state.text.op(f"bitcast float {short} to i32")
    odd = state.text.op(f"or i32 {bits}, {state.text.op(f'zext i1 {inexact} to i32')}")
    return state.text.op(f"bitcast i32 {odd} to float")


def _float_to_integer(state: Lowering, x: str, source: Scalar, to: Scalar) -> str:
    if source not in (F32, F64):
        x, source = convert(state, x, source, F32), F32
    name = register_type(source)
    if to == I1:
        return state.text.op(f"fcmp une {name} {x}, {state.constant(source, 0.0)}")
    opcode = "fptosi" if to.is_signed else "fptoui"
    return state.text.op(f"{opcode} {name} {x} to {register_type(to)}")


def _float_to_float(state: Lowering, x: str, source: Scalar, to: Scalar, rounding: str) -> str:
    if source in _EIGHT_BIT:
        return convert(state, _widen_eight_bit(state, x, source), F16, to)
    if to == F8E5M2 and rounding == "rtz":
        return _upper_byte(state, x, source)
    if to in _EIGHT_BIT:
        wide = _double_to_odd(state, x) if source == F64 else convert(state, x, source, F32)
        pair = state.machine.narrow_to_eight_bit(state, wide, state.constant(F32, 0.0), to)
        code = state.text.op(f"trunc i16 {pair} to i8")
        if rounding == "rtz":
            return _eight_bit_toward_zero(state, wide, code, to)
        state.narrowed[code, to] = wide
        return code
    if source.bits == to.bits:  # f16 <-> bf16
        return convert(state, convert(state, x, source, F32), F32, to, rounding)
    if source == F64 and to == BF16 and rounding == "rtne":
        return convert(state, _double_to_odd(state, x), F32, to)
    if source == F32 and to == BF16 and x in state.widened:
        return state.widened[x]
    if to.bits > source.bits:
        return state.text.op(f"fpext {register_type(source)} {x} to {register_type(to)}")
    if rounding == "rtz":
        return _truncate(state, x, source, to)
    made = state.text.op(f"fptrunc {register_type(source)} {x} to {register_type(to)}")
    if source == F32:
        state.narrowed[made, to] = x
    return made


def _widen_half(state: Lowering, x: str) -> str:
    """A bf16 is the upper half of the f32 of the same value: of a word of two each is one instruction away. Taken out
    of the word first, the upper one is two."""
    word, place = state.halves[x]
    bits = state.text.op(f"and i32 {word}, {-1 << 16}" if place else f"shl i32 {word}, 16")
    made = state.text.op(f"bitcast i32 {bits} to float")
    state.widened[made] = x
    return made


def _is_only_compared(state: Lowering, value: Value) -> bool:
    """Whether all that is done with an f32 can be done with the bf16 that it was: LLVM finds the instructions for pairs
    of those where it was widened by fpext."""
    work, seen = [value], {value}
    while work:
        for op in state.used.get(work.pop(), []):
            if isinstance(op, Select):
                chosen = op.result
                work += [chosen] if chosen not in seen else []
                seen.add(chosen)
            elif not _compares(op):
                return False
    return True


def _compares(op: Op) -> bool:
    """Whether it is an extremum, a comparison or a cast to bf16, or a reduction made of these."""
    if isinstance(op, Reduce):
        return all(isinstance(inner, _COMPARING) for inner in op.combine.ops[:-1])
    return isinstance(op, Min | Max | Compare) or (isinstance(op, Cast) and op.to == BF16)


#: What maxima, minima and their places are made of.
_COMPARING = (Min, Max, Compare, Select, And, Or, Not, Constant)


def _upper_byte(state: Lowering, x: str, source: Scalar) -> str:
    """The f8e5m2 that an f16 is towards zero. NaN as an f16 of its own may have all of its mantissa below; one that was
    converted has it above."""
    half = convert(state, x, source, F16, "rtz")
    bits = state.text.op(f"lshr i16 {state.text.op(f'bitcast half {half} to i16')}, 8")
    if source == F16:
        bits = state.text.op(f"select i1 {state.text.op(f'fcmp uno half {half}, {half}')}, i16 127, i16 {bits}")
    return state.text.op(f"trunc i16 {bits} to i8")


def _eight_bit_toward_zero(state: Lowering, exact: str, code: str, to: Scalar) -> str:
    """The code before ``code``, which is that of the nearest number, where that is larger in magnitude than the f32
    ``exact``."""
    back = convert(state, code, to, F32)
    sizes = [state.text.call("float", "llvm.fabs.f32", [("float", value)]) for value in (back, exact)]
    larger = state.text.op(f"fcmp ogt float {sizes[0]}, {sizes[1]}")
    less = state.text.op(f"sub i8 {code}, 1")
    return state.text.op(f"select i1 {larger}, i8 {less}, i8 {code}")


def _widen_eight_bit(state: Lowering, x: str, source: Scalar) -> str:
    if source == F8E4M3:
        pair = state.machine.widen_e4m3(state, state.text.op(f"zext i8 {x} to i16"))
        return state.text.op(f"extractelement <2 x half> {pair}, i32 0")
    # An e5m2 number is the upper byte of the f16 of the same value.
    wide = state.text.op(f"zext i8 {x} to i16")
    return state.text.op(f"bitcast i16 {state.text.op(f'shl i16 {wide}, 8')} to half")


def _truncate(state: Lowering, x: str, source: Scalar, to: Scalar) -> str:
    if source == F64:
        x = state.machine.round_towards_zero(state, x, F64, F32)
        return x if to == F32 else _truncate(state, x, F32, to)
    if to == F16:
        return state.machine.round_towards_zero(state, x, F32, F16)
    # A bfloat is the upper half of a float.
    whole = state.text.op(f"bitcast float {x} to i32")
    upper = state.text.op(f"lshr i32 {whole}, 16")
    half = state.text.op(f"trunc i32 {upper} to i16")
    return state.text.op(f"bitcast i16 {half} to bfloat")


@elementwise(Bitcast)
def _bitcast(state: Lowering, op: Bitcast, args: list[str]) -> str:
    source, to = register_type(op.x.type.elem), register_type(op.to)
    if source == to:
        return args[0]
    if isinstance(op.to, Pointer):
        return state.text.op(f"inttoptr {source} {args[0]} to {to}")
    if isinstance(op.x.type.elem, Pointer):
        return state.text.op(f"ptrtoint {source} {args[0]} to {to}")
    return state.text.op(f"bitcast {source} {args[0]} to {to}")
