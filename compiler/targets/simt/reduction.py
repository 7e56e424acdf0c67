"""Reductions: a tree inside each thread, butterfly shuffles inside each warp or one instruction of the whole warp
(:mod:`.whole_warp`), shared memory across warps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import UnsupportedOp
from ...gpu.layouts.reduction import ReductionPlan, bits_of, plan_reduction
from ...hardware import LANE_BITS
from ...ir.core import Block, Value
from ...ir.types import Element
from ...tile.reduction import Reduce
from .combining import rounds_alike
from .convert import shuffle_element, shuffle_from
from .in_order import PositionOrder, in_order
from .lowering import ELEMENT_RULES, Lowering, reach_of, rule
from .registers import Registers
from .vectors import load_shared, store_shared
from .whole_warp import whole_warp

#: One partial result: a value for each operand of the reduction.
Item = tuple[str, ...]


def combine(state: Lowering, block: Block, left: Item, right: Item, decided: Mapping[Value, str] | None = None) -> Item:
    """The combining region applied to two items. ``decided``: values of the region that are known already."""
    known: dict[Value, str] = dict(zip(block.args, (*left, *right), strict=True))
    known.update(decided or {})
    end = block.terminator
    for op in block.ops:
        if op.results and op.results[0] in known:
            continue
        element = ELEMENT_RULES.get(type(op))
        if element is not None:
            known[op.results[0]] = element(state, op, [_read(state, known, v) for v in op.operands])
        elif op is not end:
            for value in op.operands:
                if value in known:
                    state.define(value, [known[value]])
            state.lower(op)
            known.update({r: state.scalar(r) for r in op.results})
    if end is None:
        raise UnsupportedOp("a combining region has no end")
    return tuple(_read(state, known, v) for v in end.operands)


def _read(state: Lowering, known: dict[Value, str], value: Value) -> str:
    return known[value] if value in known else state.scalar(value)


@rule(Reduce)
def _reduce(state: Lowering, op: Reduce) -> None:
    layout = op.inputs[0].type.layout
    if layout is None:
        raise UnsupportedOp("a reduction needs a layout", location=op.location)
    plan = plan_reduction(layout, op.axis)
    inputs = [state.values[v] for v in op.inputs]
    elements = [v.type.elem for v in op.inputs]
    ordered = in_order(op, layout)
    items = [_reduce_thread(state, op.combine, inputs, group, ordered) for group in plan.groups]
    together = whole_warp(op, plan.lane_bits)
    if together is not None:
        items = [together(state, item) for item in items]
    else:
        items = _across_lanes(state, op.combine, items, elements, plan.lane_bits)
    if plan.warp_bits:
        items = _across_warps(state, op, plan, items, elements)
    for place, result in enumerate(op.results):
        if result.type.rank:
            state.define(result, [items[group][place] for group in plan.group_of])
        else:
            state.define(result, [items[0][place]])


def _reduce_thread(
    state: Lowering, block: Block, inputs: list[Registers], group: tuple[int, ...], ordered: PositionOrder | None
) -> Item:
    if ordered is not None:
        return _reduce_in_order(state, block, inputs, sorted(group, key=ordered.places.__getitem__), ordered.decided)
    items: list[Item] = [tuple(x[r] for x in inputs) for r in group]
    while len(items) > 1:
        half = len(items) // 2
        items = [combine(state, block, items[i], items[i + half]) for i in range(half)]
    return items[0]


def _reduce_in_order(
    state: Lowering, block: Block, inputs: list[Registers], group: list[int], decided: Mapping[Value, str]
) -> Item:
    """Neighbours are combined with each other, so that all of the left side comes before all of the right one."""
    items: list[Item] = [tuple(x[r] for x in inputs) for r in group]
    while len(items) > 1:
        pairs = zip(items[::2], items[1::2], strict=True)
        items = [combine(state, block, left, right, decided) for left, right in pairs]
    return items[0]


def _across_lanes(
    state: Lowering, block: Block, items: list[Item], elements: list[Element], bits: Sequence[int]
) -> list[Item]:
    """The items of all lanes that differ in ``bits``, combined. One lane's left item is another's right one: where they
    round otherwise, all get what the first one has, since a branch on a number has to be the same one for all."""
    for bit in bits:
        items = [_exchange(state, block, item, elements, 1 << bit) for item in items]
    if not bits or rounds_alike(block):
        return items
    first = state.thread_bits([0 if bit in bits else 1 << bit for bit in range(LANE_BITS)], [])
    return [
        tuple(shuffle_from(state, value, elem, first) for value, elem in zip(item, elements, strict=True))
        for item in items
    ]


def _exchange(state: Lowering, block: Block, item: Item, elements: list[Element], lane_xor: int) -> Item:
    other = tuple(shuffle_element(state, value, elem, lane_xor) for value, elem in zip(item, elements, strict=True))
    return combine(state, block, item, other)


def _across_warps(
    state: Lowering,
    op: Reduce,
    plan: ReductionPlan,
    items: list[Item],
    elements: list[Element],
) -> list[Item]:
    starts = []
    start = state.scratch(op)
    for value in op.inputs:
        starts.append(start)
        start += plan.scratch_bytes(bits_of(value.type))
    positions = _group_positions(plan)
    # Slot of an element: its index in the result times the number of partials, plus the warp's number along the axis.
    lane = [flat * plan.partials for flat in plan.result.flat_lane]
    warp = [flat * plan.partials for flat in plan.result.flat_warp]
    own = list(warp)
    for place, bit in enumerate(plan.warp_bits):
        own[bit] |= 1 << place
    for place, (elem, first) in enumerate(zip(elements, starts, strict=True)):
        slots = ScratchSlots(state, elem, first, lane, own)
        for position, item in zip(positions, items, strict=True):
            store_shared(state, elem, [item[place]], slots.address(position * plan.partials))
    state.barrier()
    each, sharing = plan.share_of(max(elem.bytes for elem in elements))
    for place, bit in enumerate(sharing):
        lane[bit] |= each << place
    columns = []
    for elem, first in zip(elements, starts, strict=True):
        slots = ScratchSlots(state, elem, first, lane, warp)
        columns.append([slots.load(p * plan.partials, each) for p in positions])
    made = []
    for number in range(len(items)):
        parts: list[Item] = list(zip(*(column[number] for column in columns), strict=True))
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [combine(state, op.combine, parts[i], parts[i + half]) for i in range(half)]
        made += _across_lanes(state, op.combine, parts, elements, sharing)
    return made


def _group_positions(plan: ReductionPlan) -> list[int]:
    """The index in the result (of thread 0) of each group."""
    offsets = plan.result.register_offsets()
    return [offsets[plan.group_of.index(group)] for group in range(len(plan.groups))]


class ScratchSlots:
    """Addresses of elements in scratch, by element number XORed into what the thread contributes."""

    def __init__(self, state: Lowering, elem: Element, start: int, lane: list[int], warp: list[int]) -> None:
        self.state = state
        self.elem = elem
        self.start = start
        self.bytes = elem.bytes
        lane_bytes = [b * elem.bytes for b in lane]
        warp_bytes = [b * elem.bytes for b in warp]
        self.thread = state.thread_bits(lane_bytes, warp_bytes)
        self.reach = reach_of((*lane_bytes, *warp_bytes))

    def address(self, element: int) -> str:
        offset = self.state.add_bits(self.thread, self.reach, element * self.bytes)
        base = self.state.shared(offset)
        if not self.start:
            return base
        return self.state.text.op(f"getelementptr inbounds i8, ptr addrspace(3) {base}, i32 {self.start}")

    def store(self, element: int, value: str) -> None:
        """Put a value into its place."""
        store_shared(self.state, self.elem, [value], self.address(element))

    def load(self, first: int, count: int) -> list[str]:
        """Neighbouring elements, ``count`` from a multiple of it on, as the widest vectors."""
        vector = min(count, 16 // self.bytes)
        values: list[str] = []
        for element in range(first, first + count, vector):
            values += load_shared(self.state, self.elem, vector, self.address(element))
        return values
