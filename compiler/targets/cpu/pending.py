"""Memory order: a load is computed where it is read, but before a statement that changes memory."""

from __future__ import annotations

from ...ir.core import Effect, Op, Value
from ...tile import memory
from .expressions import tiles_read
from .interleave import may_interleave
from .lower import CpuLowering
from .nests import materialise


def settle_loads(low: CpuLowering, writer: Op | None) -> None:
    """Before ``writer`` changes memory, do all loads that come before it and are still to be computed.

    A load that only a store reads may stay where :func:`~.interleave.may_interleave` says so: it is done chunk by
    chunk, where :func:`~.spans.in_turns` is true.
    """
    last = low.live.dying(writer.operands) if isinstance(writer, memory.Store) else set()
    for load in list(low.pending_loads):
        if load in low.stored or not low.live.uses.get(load):
            low.pending_loads.pop(load)
        elif load not in last or not _stays(low, load, writer):
            materialise(low, load)


def _stays(low: CpuLowering, load: Value, writer: Op | None) -> bool:
    op = load.op
    if not isinstance(writer, memory.Store) or not isinstance(op, memory.Load):
        return False
    return tiles_read(writer.value, low.stored).get(load, False) and may_interleave(op, writer)


def settle_for_region(low: CpuLowering, op: Op) -> None:
    """Before a region: store the kept values that it reads; do pending loads if it writes."""
    inside = dict.fromkeys(v for b in op.blocks for o in b.walk() for v in o.operands if v.type.rank)
    for value in inside:
        if value in low.live.depths or value in low.stored:
            for inner in tiles_read(value, low.stored):
                # Storing an outer value lets go of what it alone read: that is dead, and its operands may be gone.
                if inner in low.plan.kept and inner not in low.stored and low.live.uses.get(inner):
                    materialise(low, inner)
    if any(o.effect is Effect.WRITE for b in op.blocks for o in b.walk()):
        settle_loads(low, op)
