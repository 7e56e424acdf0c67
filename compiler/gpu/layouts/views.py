"""Views: operations that only rename elements. How a layout is carried across each of them, in both directions.

This is the one place that knows; assignment (:mod:`.homes`), emission (:mod:`.relayout`) and verification ask here.
Registers of the operand become those of the result as ``layout/transform.py`` says, so that views emit no code.
"""

from __future__ import annotations

from ...ir.core import Op, Value
from ...layout import (
    LinearLayout,
    expand_dims_layout,
    join_layout,
    permute_layout,
    reshape_layout,
    slice_layout,
    split_layout,
    unbroadcast_layout,
)
from ...tile.shape import Broadcast, ExpandDims, Join, Permute, Reshape, Split

#: Operations that only rename elements: the operand's layout follows from the result's.
VIEWS: frozenset[type[Op]] = frozenset({ExpandDims, Broadcast, Reshape, Permute, Join, Split})


def is_view(op: Op | None) -> bool:
    """Whether ``op`` moves no data when its operand has the fitting layout."""
    return type(op) in VIEWS


def unpermuted(value: Value) -> Value:
    """What ``value`` is a transposed view of; itself where it is none."""
    while isinstance(value.op, Permute):
        value = value.op.x
    return value


def operand_layout(op: Op, result: LinearLayout) -> LinearLayout:
    """The layout of the operands of a view whose results have ``result``.

    Raises:
        LayoutError: ``op`` is a join, and ``result`` does not have both halves in neighbouring registers.
    """
    match op:
        case ExpandDims():
            return slice_layout(result, op.axis)
        case Broadcast():
            return unbroadcast_layout(result, op.x.type.shape)
        case Permute():
            return permute_layout(result, tuple(sorted(range(len(op.order)), key=op.order.__getitem__)))
        case Reshape():
            return reshape_layout(result, op.x.type.shape)
        case Split():
            return join_layout(result)
        case Join():
            return split_layout(result)
        case _:
            raise TypeError(f"{op!r} is not a view")


def result_layout(op: Op, operand: LinearLayout) -> LinearLayout | None:
    """The layout of the results of a view whose operands have ``operand``; None where the operand does not decide it.

    Raises:
        LayoutError: ``op`` is a split, and ``operand`` does not have both halves in neighbouring registers.
    """
    match op:
        case ExpandDims():
            return expand_dims_layout(operand, op.axis)
        case Permute():
            return permute_layout(operand, op.order)
        case Reshape():
            return reshape_layout(operand, op.shape)
        case Split():
            return split_layout(operand)
        case Join():
            return join_layout(operand)
        case _:
            # A broadcast would put all copies into one thread.
            return None
