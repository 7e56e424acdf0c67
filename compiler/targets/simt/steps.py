"""Whole numbers by which a thread's registers of a tile differ, whatever the thread.

Positions and what is added to all of them are such tiles. Their registers are computed from the first one: what differs
from thread to thread, or from iteration to iteration, is added once, and addresses of one access share a register.
"""

from __future__ import annotations

from ...ir.core import Value
from ...tile import elementwise as ew
from ...tile.shape import Arange, Broadcast, ExpandDims, Permute, Reshape, Splat
from .lowering import reach_of

#: From the first register to each.
Steps = tuple[int, ...]


def register_steps(value: Value, known: dict[Value, Steps | None]) -> Steps | None:
    """The steps of a tile of integers, None where they are not known. ``known``: those found before, to be filled."""
    if value not in known:
        known[value] = _found(value, known)
    return known[value]


def _found(value: Value, known: dict[Value, Steps | None]) -> Steps | None:
    layout = value.type.layout
    if layout is None or not value.type.is_integer:
        return None
    match value.op:
        case Arange():
            offsets = layout.register_offsets()
            reach = reach_of([*layout.flat_lane, *layout.flat_warp])
            return None if any(reach & offset for offset in offsets) else tuple(offsets)
        case Splat() | ew.Constant():
            return (0,) * layout.registers
        case ExpandDims() | Broadcast() | Permute() | Reshape() as op:
            inner = register_steps(op.operands[0], known)
            return inner if inner is not None and len(inner) == layout.registers else None
        case ew.Add() as op:
            left, right = register_steps(op.lhs, known), register_steps(op.rhs, known)
            return None if left is None or right is None else tuple(x + y for x, y in zip(left, right, strict=True))
        case _:
            return None
