"""Reductions of values with their positions, as that of argmax: inside a thread the positions are known to be in order,
so that which of two comes first need not be asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

from ...gpu.ops import ConvertLayout
from ...ir.core import Value
from ...layout import LinearLayout
from ...tile.elementwise import Compare
from ...tile.reduction import Reduce
from ...tile.shape import Arange, Broadcast, ExpandDims

#: What a comparison of two positions says of which the left one is smaller.
_ANSWERS = {"lt": "true", "le": "true", "ne": "true", "gt": "false", "ge": "false", "eq": "false"}
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True, slots=True)
class PositionOrder:
    """``places``: of every register along the axis, as far as registers tell; ``decided``: comparisons of the combining
    region, and what they say where the left one of two items comes first."""

    places: tuple[int, ...]
    decided: dict[Value, str]


def in_order(op: Reduce, layout: LinearLayout) -> PositionOrder | None:
    """The order of a thread's items in ``op``; None where no operand has positions that are compared, or where those of
    registers are not in the same order in all threads."""
    count = len(op.inputs)
    decided: dict[Value, str] = {}
    for place, value in enumerate(op.inputs):
        if _are_positions(value, op.axis):
            left, right = op.combine.args[place], op.combine.args[place + count]
            decided |= _comparisons(op, left, right)
    if not decided:
        return None
    places = tuple(coordinates[op.axis] for coordinates in layout.register_coordinates())
    others = [basis[op.axis] for basis in (*layout.lane, *layout.warp, *layout.block)]
    return None if reduce(or_, places, 0) & reduce(or_, others, 0) else PositionOrder(places, decided)


def _comparisons(op: Reduce, left: Value, right: Value) -> dict[Value, str]:
    found: dict[Value, str] = {}
    for inner in op.combine.ops:
        if isinstance(inner, Compare) and {inner.lhs, inner.rhs} == {left, right}:
            predicate = inner.predicate if inner.lhs is left else _TURNED.get(inner.predicate, inner.predicate)
            found[inner.result] = _ANSWERS[predicate]
    return found


def _are_positions(value: Value, axis: int) -> bool:
    """Whether ``value`` counts along ``axis``."""
    match value.op:
        case Arange():
            return True
        case ConvertLayout(x=x):
            return _are_positions(x, axis)
        case Broadcast(x=x):
            return x.type.shape[axis] == value.type.shape[axis] and _are_positions(x, axis)
        case ExpandDims(x=x, axis=new):
            return axis != new and _are_positions(x, axis - (axis > new))
        case _:
            return False
