"""Operations by which elements change places: renaming, shuffles, or shared memory."""

from __future__ import annotations

from ...errors import UnsupportedOp
from ...gpu.butterfly import ButterflyPlan, plan_butterfly
from ...tile.movement import Butterfly
from .convert import shuffle_element
from .lowering import LANE_BITS, Lowering, rule
from .vectors import load_shared, store_shared


@rule(Butterfly)
def _butterfly(state: Lowering, op: Butterfly) -> None:
    layout = op.x.type.layout
    if layout is None:
        raise UnsupportedOp("a butterfly needs a layout", location=op.location)
    plan = plan_butterfly(layout, op.axis, op.distance)
    source, elem = state.values[op.x], op.x.type.elem
    if plan.warp:
        state.define(op.result, _across_warps(state, op, plan))
    elif plan.lane:
        state.define_lazily(
            op.result, [source], lambda i: shuffle_element(state, source[i ^ plan.register], elem, plan.lane)
        )
    else:
        state.define_lazily(op.result, [source], lambda i: source[i ^ plan.register])


def _across_warps(state: Lowering, op: Butterfly, plan: ButterflyPlan) -> list[str | None]:
    """Each thread leaves its elements in slots of its own, one beside that of the next thread: no bank conflicts."""
    source, elem, start = state.values[op.x], op.x.type.elem, state.scratch(op)
    mine = state.text.op(f"mul nuw nsw i32 {state.thread}, {elem.bytes}")
    other = state.text.op(f"xor i32 {state.thread}, {plan.warp << LANE_BITS | plan.lane}")
    theirs = state.text.op(f"mul nuw nsw i32 {other}, {elem.bytes}")
    row = plan.threads * elem.bytes
    for register in source.unique():
        place = state.plus(mine, start + plan.slots[register] * row)
        store_shared(state, elem, [source[register]], state.shared(place))
    state.barrier()
    made: list[str | None] = [None] * len(source)
    for register in source.unique():
        place = state.plus(theirs, start + plan.slots[register ^ plan.register] * row)
        (made[register],) = load_shared(state, elem, 1, state.shared(place))
    return made
