"""Numbers that are the same in all threads of a warp, in a way that the assembler sees: so it keeps them in uniform
registers, where addresses of barriers and matrices belong."""

from __future__ import annotations

from collections.abc import Sequence

from ...hardware import LANE_BITS
from ..simt.lowering import Lowering


def warp_number(state: Lowering) -> str:
    """The number of this thread's warp in its program (i32), taken from the warp's first lane; computed once."""
    return state.once("warp", _warp_number)


def _warp_number(state: Lowering) -> str:
    own = state.text.op(f"lshr i32 {state.thread}, {LANE_BITS}")
    return state.machine.shuffle_from(state, own, "i32", "0")


def lane_number(state: Lowering) -> str:
    """The number of this thread in its warp (i32); computed once."""
    return state.once("lane", lambda s: s.text.op(f"and i32 {s.thread}, {(1 << LANE_BITS) - 1}"))


def uniform_warp_bits(state: Lowering, bases: Sequence[int]) -> str:
    """XOR of ``bases`` at the set bits of the warp number (i32); computed once per kernel."""
    if not any(bases):
        return "0"
    number = warp_number(state)
    return state.once(("warp bits", *bases), lambda s: s.emit_linear(number, tuple(bases)))
