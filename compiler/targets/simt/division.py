"""Quotients and remainders.

Integer division by 0 and of the minimum by -1 are undefined in LLVM, which concludes from ``x // y`` that y is not 0,
for every other use of y, and packs an 8-bit quotient beside its neighbour without a mask. So no such division is ever
emitted: all bits of x / 0 and x % 0 are set, as an H100 does it for up to 32 bits, and the minimum / -1 wraps, on all
targets. Of 32 bits the machine's own instruction is written where the divisor is not known: LLVM knows nothing of it,
and a guard would make each quotient wait for three instructions more.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Value
from ...ir.types import BF16, F16, F32, F64, Scalar
from ...llvm.remainder import emit_remainder
from ...llvm.typed import Emitter, Typed
from ...tile import elementwise as ew
from ...tile.shape import Broadcast, ExpandDims, Splat
from .casts import convert
from .elementwise import kind_of
from .lowering import Lowering, element_rule, elementwise, rule


@rule(ew.Div)
def _div(state: Lowering, op: ew.Div) -> None:
    """A divisor that several elements of a thread share, as the sum of a softmax, is inverted once."""
    operands = [state.values[v] for v in op.operands]
    dividends, divisors = operands
    dividers: dict[str, Callable[[str], str]] = {}

    def quotient(i: int) -> str:
        return _quotient(state, op, [dividends[i], divisors[i]])

    def quotient_of_shared(i: int) -> str:
        x, y = dividends[i], divisors[i]
        if y not in dividers:
            dividers[y] = state.machine.divider(state, y)
        return dividers[y](x)

    quick = op.lhs.type.scalar == F32 and not op.precise
    state.define_lazily(op.result, operands, quotient_of_shared if quick and _is_shared(state, op.rhs) else quotient)


def _is_shared(state: Lowering, value: Value) -> bool:
    """Whether registers of a tile hold copies for being spread from fewer."""
    while isinstance(value.op, (Splat, Broadcast, ExpandDims)):
        (source,) = value.op.operands
        if len(state.values[value].unique()) > len(state.values[source].unique()):
            return True
        value = source
    return False


@element_rule(ew.Div)
def _quotient(state: Lowering, op: ew.Div, args: list[str]) -> str:
    scalar, name = kind_of(state, op.lhs)
    if scalar in (F16, BF16):
        wide = [state.text.op(f"fpext {name} {a} to float") for a in args]
        quotient = state.text.op(f"fdiv float {wide[0]}, {wide[1]}")
        return state.text.op(f"fptrunc float {quotient} to {name}")
    if scalar == F32 and not op.precise:
        return state.machine.divide(state, args[0], args[1])
    return state.text.op(f"fdiv {name} {args[0]}, {args[1]}")


@elementwise(ew.IntDiv)
def _int_div(state: Lowering, op: ew.IntDiv, args: list[str]) -> str:
    scalar, name = kind_of(state, op.lhs)
    x, y = args
    if _has_instruction(scalar, y):
        return state.machine.divide_integers(state, "div", scalar, x, y)
    special, divisor = _divisor(state, scalar, name, y)
    opcode = "sdiv" if scalar.is_signed else "udiv"
    quotient = state.text.op(f"{opcode} {name} {x}, {divisor}")
    if not scalar.is_signed:
        return state.text.op(f"select i1 {special}, {name} {_ones(scalar)}, {name} {quotient}")
    # Where the divisor became 1, y itself is 0 or -1.
    negated = state.text.op(f"sub {name} 0, {x}")
    zero = state.text.op(f"icmp eq {name} {y}, 0")
    other = state.text.op(f"select i1 {zero}, {name} {_ones(scalar)}, {name} {negated}")
    return state.text.op(f"select i1 {special}, {name} {other}, {name} {quotient}")


@elementwise(ew.Rem)
def _rem(state: Lowering, op: ew.Rem, args: list[str]) -> str:
    scalar, name = kind_of(state, op.lhs)
    if scalar.is_float:
        wide = F64 if scalar == F64 else F32
        type = "double" if scalar == F64 else "float"
        x, y = (Typed(type, convert(state, a, scalar, wide)) for a in args)
        return convert(state, emit_remainder(Emitter(state.text), x, y).name, wide, scalar)
    if _has_instruction(scalar, args[1]):
        return state.machine.divide_integers(state, "rem", scalar, *args)
    _, divisor = _divisor(state, scalar, name, args[1])  # x % 1 is 0, and so is x % -1
    remainder = state.text.op(f"{'srem' if scalar.is_signed else 'urem'} {name} {args[0]}, {divisor}")
    zero = state.text.op(f"icmp eq {name} {args[1]}, {_zero(scalar)}")
    return state.text.op(f"select i1 {zero}, {name} {_ones(scalar)}, {name} {remainder}")


def _has_instruction(scalar: Scalar, divisor: str) -> bool:
    """Whether the machine divides as wanted; of a number that is known LLVM makes a multiplication."""
    return scalar.bits == 32 and not divisor.removeprefix("-").isdecimal()


def _divisor(state: Lowering, scalar: Scalar, name: str, y: str) -> tuple[str, str]:
    """(whether y is 0, or -1 of a signed type; 1 there and y elsewhere)."""
    if scalar.is_signed:
        above = state.text.op(f"add {name} {y}, 1")
        special = state.text.op(f"icmp ult {name} {above}, 2")
    else:
        special = state.text.op(f"icmp eq {name} {y}, {_zero(scalar)}")
    return special, state.text.op(f"select i1 {special}, {name} {_one(scalar)}, {name} {y}")


def _zero(scalar: Scalar) -> str:
    return "false" if scalar.bits == 1 else "0"


def _one(scalar: Scalar) -> str:
    return "true" if scalar.bits == 1 else "1"


def _ones(scalar: Scalar) -> str:
    return "true" if scalar.bits == 1 else "-1"
