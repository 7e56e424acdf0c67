"""Operations by which elements change places: renaming, shuffles, or shared memory."""

from __future__ import annotations

import math

from ...errors import UnsupportedOp
from ...gpu.layouts.butterfly import ButterflyPlan, plan_butterfly
from ...hardware import LANE_BITS
from ...ir.core import Value
from ...layout.linear import flatten
from ...tile.movement import Butterfly, Gather
from .convert import shuffle_elements
from .lowering import Lowering, reach_of, rule
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
            op.result, [source], lambda i: shuffle_elements(state, [source[i ^ plan.register]], elem, plan.lane)[0]
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


@rule(Gather)
def _gather(state: Lowering, op: Gather) -> None:
    """All of the operand goes to shared memory, in row-major order, and each thread picks its elements there."""
    elem, shape, start = op.src.type.elem, op.src.type.shape, state.scratch(op)
    source, index = state.values[op.src], state.values[op.index]
    everywhere = _Places(state, op.src, shape, elem.bytes, start)
    for register in source.unique():
        store_shared(state, elem, [source[register]], everywhere.of(register))
    state.barrier()
    rows = _Places(state, op.index, shape, elem.bytes, start, without=op.axis)
    step = elem.bytes * math.prod(shape[op.axis + 1 :])
    made: list[str | None] = [None] * len(index)
    for register in index.unique():
        inside = state.text.op(f"and i32 {index[register]}, {shape[op.axis] - 1}")
        moved = state.text.op(f"mul nuw nsw i32 {inside}, {step}")
        address = state.text.op(f"getelementptr inbounds i8, ptr addrspace(3) {rows.of(register)}, i32 {moved}")
        (made[register],) = load_shared(state, elem, 1, address)
    state.define(op.result, made)


class _Places:
    """Addresses of the elements of ``value`` in a row-major tile of ``shape`` that begins at byte ``start`` of shared
    memory; along the axis ``without`` all of them are the first one's."""

    def __init__(
        self,
        state: Lowering,
        value: Value,
        shape: tuple[int, ...],
        element_bytes: int,
        start: int,
        without: int | None = None,
    ) -> None:
        layout = value.type.layout
        if layout is None:
            raise UnsupportedOp("a gather needs layouts")

        def offset(at: tuple[int, ...]) -> int:
            return element_bytes * flatten(shape, tuple(0 if d == without else c for d, c in enumerate(at)))

        lane, warp = [offset(basis) for basis in layout.lane], [offset(basis) for basis in layout.warp]
        self._state = state
        self._start = start
        self._offsets = [offset(at) for at in layout.register_coordinates()]
        self._thread = state.thread_bits(lane, warp)
        self._reach = reach_of((*lane, *warp))

    def of(self, register: int) -> str:
        """The address of the element in this register."""
        offset = self._state.add_bits(self._thread, self._reach, self._offsets[register])
        return self._state.shared(self._state.plus(offset, self._start))
