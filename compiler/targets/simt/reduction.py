"""Reductions: a tree inside each thread, butterfly shuffles inside each warp or one instruction of the whole warp
(:mod:`.whole_warp`), shared memory across warps
(:mod:`.reduction_warps`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import UnsupportedOp
from ...gpu.layouts.reduction import plan_reduction
from ...ir.core import Block, Value
from ...layout import LinearLayout
from ...tile.reduction import Reduce
from .in_order import in_order
from .items import Item, across_lanes, combine, in_trees
from .lowering import Lowering, rule
from .reduction_warps import across_warps
from .registers import Registers
from .whole_warp import whole_warp


@rule(Reduce)
def _reduce(state: Lowering, op: Reduce) -> None:
    layout = op.inputs[0].type.layout
    if layout is None:
        raise UnsupportedOp("a reduction needs a layout", location=op.location)
    plan = plan_reduction(layout, op.axis)
    inputs = [state.values[v] for v in op.inputs]
    elements = [v.type.elem for v in op.inputs]
    items = _reduce_threads(state, op, inputs, plan.groups, layout)
    together = whole_warp(op, plan.lane_bits)
    if together is not None:
        items = [together(state, item) for item in items]
    else:
        items = across_lanes(state, op.combine, items, elements, plan.lane_bits)
    if plan.warp_bits:
        items = across_warps(state, op, plan, items)
    for place, result in enumerate(op.results):
        if result.type.rank:
            state.define(result, [items[group][place] for group in plan.group_of])
        else:
            state.define(result, [items[0][place]])


def _reduce_threads(
    state: Lowering, op: Reduce, inputs: list[Registers], groups: Sequence[tuple[int, ...]], layout: LinearLayout
) -> list[Item]:
    ordered = in_order(op, layout)
    if ordered is None:
        return in_trees(state, op.combine, [[tuple(x[r] for x in inputs) for r in group] for group in groups])
    return [
        _reduce_in_order(state, op.combine, inputs, sorted(group, key=ordered.places.__getitem__), ordered.decided)
        for group in groups
    ]


def _reduce_in_order(
    state: Lowering, block: Block, inputs: list[Registers], group: list[int], decided: Mapping[Value, str]
) -> Item:
    """Neighbours are combined with each other, so that all of the left side comes before all of the right one."""
    items: list[Item] = [tuple(x[r] for x in inputs) for r in group]
    while len(items) > 1:
        pairs = zip(items[::2], items[1::2], strict=True)
        items = [combine(state, block, left, right, decided) for left, right in pairs]
    return items[0]
