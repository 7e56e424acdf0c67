"""Reductions by all lanes of a warp at once: of 32-bit integers by one instruction, and extrema of f32 by way of
integers that are in the same order.

Five rounds of shuffles and of the combining region are ten instructions for a maximum, and fifty for one with its
place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...hardware import LANE_BITS
from ...ir.types import F32, I32, Scalar
from ...tile.reduction import Reduce
from .combining import Extreme, Kind, Placed, Sole, what_it_does
from .lowering import Lowering

#: Combines what each lane has of every operand; all lanes get the result.
Together = Callable[[Lowering, Sequence[str]], tuple[str, ...]]
#: The least and the largest i32.
_LEAST, _LARGEST = -(2**31), 2**31 - 1


def whole_warp(op: Reduce, lane_bits: Sequence[int]) -> Together | None:
    """What combines the values of all lanes of a warp; None where there are several groups of lanes, and where no
    instruction does that."""
    elements = [value.type.elem for value in op.inputs]
    if len(lane_bits) < LANE_BITS or any(elem.bits != 32 for elem in elements):
        return None
    match what_it_does(op.combine), elements:
        case Sole(kind="min" | "max" as extreme, propagate_nan=propagate), [elem] if elem == F32:
            return lambda state, item: (_extreme_float(state, extreme, item[0], propagate=propagate),)
        case Sole(kind=kind), [Scalar() as number] if number.is_integer:
            return lambda state, item: (_reduced(state, kind, number, item[0]),)
        case Placed(extreme=extreme), [Scalar() as elem, Scalar() as place]:
            return lambda state, item: _with_place(state, extreme, (elem, place), item)
    return None


def _reduced(state: Lowering, kind: Kind, elem: Scalar, value: str) -> str:
    unsigned = kind in ("min", "max") and not elem.is_signed
    return state.machine.reduce_warp(state, f"u{kind}" if unsigned else kind, value)


def _extreme_float(state: Lowering, extreme: Extreme, value: str, *, propagate: bool) -> str:
    """Of zeros -0.0 is the smaller one. NaN comes last or, to ``propagate``, first."""
    wins = _LARGEST if extreme == "max" else _LEAST
    ordered = _ordered(state, value, wins if propagate else ~wins)
    return _as_float(state, _flipped(state, state.machine.reduce_warp(state, extreme, ordered)))


def _with_place(
    state: Lowering, extreme: Extreme, elements: tuple[Scalar, Scalar], item: Sequence[str]
) -> tuple[str, ...]:
    """The extreme of all lanes, then the smallest place of those that have it, then that lane's value, bit by bit."""
    value, place = item
    elem, number = elements
    text, ordered = state.text, value
    if elem == F32:
        plain = text.op(f"fadd float {value}, 0.0")  # both zeros are +0.0
        ordered = _ordered(state, plain, _LEAST if extreme == "max" else _LARGEST)
    best = _reduced(state, extreme, I32 if elem == F32 else elem, ordered)
    here = text.op(f"icmp eq i32 {ordered}, {best}")
    candidate = text.op(f"select i1 {here}, i32 {place}, i32 {_LARGEST if number.is_signed else -1}")
    first = _reduced(state, "min", number, candidate)
    if elem != F32:
        return best, first
    owner = text.op(f"and i1 {here}, {text.op(f'icmp eq i32 {place}, {first}')}")
    mine = text.op(f"select i1 {owner}, i32 {_as_bits(state, value)}, i32 0")
    return _as_float(state, state.machine.reduce_warp(state, "or", mine)), first


def _ordered(state: Lowering, value: str, of_nan: int) -> str:
    """An i32 for an f32, in the same order; ``of_nan`` stands for all NaNs."""
    number = _flipped(state, _as_bits(state, value))
    is_nan = state.text.op(f"fcmp uno float {value}, {value}")
    return state.text.op(f"select i1 {is_nan}, i32 {of_nan}, i32 {number}")


def _flipped(state: Lowering, bits: str) -> str:
    """Bits of f32 as an i32 in the same order, and back: those of negative numbers but the sign are inverted. What is
    beyond the infinities on either side are NaNs."""
    sign = state.text.op(f"ashr i32 {bits}, 31")
    mask = state.text.op(f"and i32 {sign}, {_LARGEST}")
    return state.text.op(f"xor i32 {bits}, {mask}")


def _as_bits(state: Lowering, value: str) -> str:
    return state.text.op(f"bitcast float {value} to i32")


def _as_float(state: Lowering, bits: str) -> str:
    return state.text.op(f"bitcast i32 {bits} to float")
