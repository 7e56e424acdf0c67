"""Histograms: counters in shared memory, to which each element adds one."""

from __future__ import annotations

from ...errors import UnsupportedOp
from ...ir.types import I32
from ...tile.reduction import Histogram
from .lowering import Lowering, reach_of, rule
from .registers import register_type
from .vectors import load_shared

_BYTES = I32.bytes


@rule(Histogram)
def _histogram(state: Lowering, op: Histogram) -> None:
    start = state.scratch(op)
    _clear(state, op.bins, start)
    state.barrier()
    _count(state, op, start)
    state.barrier()
    layout = op.result.type.layout
    if layout is None:
        raise UnsupportedOp("a histogram needs a layout", location=op.location)
    lane, warp = [flat * _BYTES for flat in layout.flat_lane], [flat * _BYTES for flat in layout.flat_warp]
    thread, reach = state.thread_bits(lane, warp), reach_of((*lane, *warp))

    def read(index: int) -> str:
        offset = state.add_bits(thread, reach, layout.register_offsets()[index] * _BYTES)
        return load_shared(state, I32, 1, state.shared(state.plus(offset, start)))[0]

    counts: list[str | None] = [None] * layout.registers
    seen: dict[int, str] = {}
    for index, flat in enumerate(layout.register_offsets()):
        counts[index] = seen[flat] if flat in seen else seen.setdefault(flat, read(index))
    state.define(op.result, counts)


def _clear(state: Lowering, bins: int, start: int) -> None:
    """Each thread clears every so many counters."""
    own = state.text.op(f"mul nuw nsw i32 {state.thread}, {_BYTES}")
    if bins < state.threads:
        alone = state.text.op(f"icmp ult i32 {state.thread}, {bins}")
        state.machine.store_shared(state, I32.bits, "0", state.shared(state.plus(own, start)), alone)
        return
    for first in range(0, bins, state.threads):
        place = state.shared(state.plus(own, start + first * _BYTES))
        state.text.do(f"store i32 0, ptr addrspace(3) {place}, align {_BYTES}")


def _count(state: Lowering, op: Histogram, start: int) -> None:
    """One thread adds one for each element that is in range and not masked off."""
    x, mask = state.values[op.x], state.values[op.mask] if op.mask is not None else None
    word = register_type(op.x.type.elem)
    alone = state.only_thread(op.x.type.layout)
    for register in x.unique():
        inside = state.text.op(f"icmp ult {word} {x[register]}, {op.bins}")
        counts = state.both(inside, mask[register] if mask is not None else None)
        number = x[register] if word == "i32" else state.text.op(f"trunc {word} {x[register]} to i32")
        offset = state.text.op(f"shl i32 {number}, {_BYTES.bit_length() - 1}")
        place = state.shared(state.text.op(f"add i32 {offset}, {start}"))
        state.machine.add_shared(state, "1", place, state.both(alone, counts) or "true")
