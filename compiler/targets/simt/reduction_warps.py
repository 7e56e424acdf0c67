"""How warps reduce together, through shared memory: as :mod:`...gpu.layouts.warp_exchange` says."""

from __future__ import annotations

from collections.abc import Sequence

from ...gpu.layouts.reduction import ReductionPlan
from ...gpu.layouts.warp_exchange import WarpExchange, exchange_bytes, plan_exchange
from ...ir.types import Element
from ...tile.reduction import Reduce
from .items import Item, across_lanes, in_trees
from .lowering import Lowering
from .scratch_slots import ScratchSlots


def across_warps(state: Lowering, op: Reduce, plan: ReductionPlan, items: list[Item]) -> list[Item]:
    """The thread's results, of what its warp has of each (``items``) and of what others have."""
    elements = [value.type.elem for value in op.inputs]
    exchange = plan_exchange(plan, max(elem.bytes for elem in elements))
    partials, told = [], []
    start = state.scratch(op)
    for elem in elements:
        partials.append(start)
        start += exchange_bytes(exchange, elem.bytes)[0]
    for elem in elements:
        told.append(start)
        start += exchange_bytes(exchange, elem.bytes)[1]
    _write(state, exchange, elements, partials, items)
    state.barrier()
    if not exchange.shared_out:
        return _read_own(state, op, exchange, elements, partials)
    item = _read_share(state, op, exchange, elements, partials)
    if exchange.in_place:
        told = partials
        state.barrier()
    for elem, first, value in zip(elements, told, item, strict=True):
        ScratchSlots(state, elem, first, *exchange.told()).store(0, value)
    state.barrier()
    lane, warp = plan.result.flat_lane, plan.result.flat_warp
    columns = [
        _of_runs(ScratchSlots(state, elem, first, lane, warp), plan.positions, exchange.told_run)
        for elem, first in zip(elements, told, strict=True)
    ]
    return list(zip(*columns, strict=True))


def _write(
    state: Lowering, exchange: WarpExchange, elements: Sequence[Element], starts: Sequence[int], items: list[Item]
) -> None:
    positions, run = exchange.plan.positions, exchange.run
    for place, (elem, start) in enumerate(zip(elements, starts, strict=True)):
        slots = ScratchSlots(state, elem, start, *exchange.written())
        for number in range(0, len(items), run):
            values = [item[place] for item in items[number : number + run]]
            slots.store(exchange.place(positions[number]), *values)


def _read_own(
    state: Lowering, op: Reduce, exchange: WarpExchange, elements: Sequence[Element], starts: Sequence[int]
) -> list[Item]:
    """Every thread reads the partials of its results, lanes of the same result some each."""
    places = [exchange.place(position) for position in exchange.plan.positions]
    columns = []
    for elem, start in zip(elements, starts, strict=True):
        slots = ScratchSlots(state, elem, start, *exchange.read())
        if exchange.neighbours > 1:
            columns.append([_partials(slots, exchange, place) for place in places])
            continue
        rows = []
        for partial in range(exchange.each):
            rows.append(_of_runs(slots, [place ^ exchange.place(0, partial) for place in places], exchange.run))
        columns.append([list(column) for column in zip(*rows, strict=True)])
    totals = in_trees(state, op.combine, [list(zip(*parts, strict=True)) for parts in zip(*columns, strict=True)])
    return across_lanes(state, op.combine, totals, list(elements), exchange.sharing)


def _read_share(
    state: Lowering, op: Reduce, exchange: WarpExchange, elements: Sequence[Element], starts: Sequence[int]
) -> Item:
    """The result that this thread tells, all of whose partials it and its neighbours read."""
    columns = [
        _partials(ScratchSlots(state, elem, start, *exchange.read()), exchange, 0)
        for elem, start in zip(elements, starts, strict=True)
    ]
    totals = in_trees(state, op.combine, [list(zip(*columns, strict=True))])
    return across_lanes(state, op.combine, totals, list(elements), range(exchange.readers.bit_length() - 1))[0]


def _partials(slots: ScratchSlots, exchange: WarpExchange, place: int) -> list[str]:
    """All partials that this lane reads of the element whose first one is at ``place``."""
    together = exchange.neighbours
    values: list[str] = []
    for partial in range(0, exchange.each, together):
        values += slots.load(place ^ exchange.place(0, partial), together)
    return values


def _of_runs(slots: ScratchSlots, places: Sequence[int], run: int) -> list[str]:
    """What is at ``places``, of which ``run`` lie next to each other, from each multiple of that on."""
    values: list[str] = []
    for place in places[::run]:
        values += slots.load(place, run)
    return values
