"""Checks of the GPU stage, on top of those that hold at every stage."""

from __future__ import annotations

from ..errors import IRError
from ..ir.core import Function, Op, Value
from ..ir.verify import verify
from ..layout import (
    LinearLayout,
    expand_dims_layout,
    permute_layout,
    reshape_layout,
    slice_layout,
    split_layout,
    unbroadcast_layout,
)
from ..tile.control import For, If, While
from ..tile.memory import AtomicCAS, AtomicRMW, Load, Store
from ..tile.reduction import Reduce, Scan
from ..tile.shape import Broadcast, ExpandDims, Join, Permute, Reshape, Split


def verify_gpu(function: Function) -> Function:
    """Check that every tile has a layout for all warps, and that the layouts of each operation fit together.

    Raises:
        IRError: naming the operation and the layouts.
    """
    verify(function)
    if function.num_warps is None:
        raise IRError(f"{function.name} has no number of warps")
    for op in function.walk():
        for value in (*op.operands, *op.results):
            _check_value(op, value, function.num_warps)
        problem = _problem(op)
        if problem:
            layouts = ", ".join(str(v.type) for v in (*op.operands, *op.results))
            raise IRError(f"{op!r} at {op.location}: {problem} ({layouts})")
    return function


def _check_value(op: Op, value: Value, warps: int) -> None:
    layout = value.type.layout
    if not value.type.rank:
        return
    if layout is None:
        raise IRError(f"{op!r} at {op.location}: {value!r} has no layout")
    if layout.shape != value.type.shape or layout.lanes != 32 or layout.warps != warps:
        raise IRError(
            f"{op!r} at {op.location}: the layout of {value!r} is one of {layout.warps} warps for {layout.shape}"
        )


def _tile_layouts(values: list[Value] | tuple[Value, ...]) -> list[LinearLayout]:
    return [v.type.layout for v in values if v.type.layout is not None]


def _same(values: list[Value] | tuple[Value, ...]) -> bool:
    layouts = _tile_layouts(values)
    return all(layout == layouts[0] for layout in layouts)


def _problem(op: Op) -> str:
    """What is wrong with the layouts of ``op``, or an empty text."""
    match op:
        case Load() | Store() | AtomicRMW() | AtomicCAS():
            fits = _same([*op.operands, *op.results])
        case Reduce():
            layouts = _tile_layouts(op.inputs)
            kept = slice_layout(layouts[0], op.axis)
            fits = _same(op.inputs) and all(got == kept for got in _tile_layouts(op.results))
        case Scan():
            fits = _same([*op.inputs, *op.results])
        case ExpandDims() | Broadcast() | Permute() | Reshape() | Split():
            fits = not op.results[0].type.rank or not op.x.type.rank or _view_fits(op)
        case Join():
            fits = _join_fits(op)
        case For() | While() | If():
            fits = _boundaries_fit(op)
        case _ if op.elementwise:
            fits = _same([*op.operands, *op.results])
        case _:
            fits = True
    return "" if fits else "the layouts do not fit together"


def _view_fits(op: ExpandDims | Broadcast | Permute | Reshape | Split) -> bool:
    (source,), (result, *_) = _tile_layouts(op.operands), _tile_layouts(op.results)
    match op:
        case ExpandDims():
            return source == slice_layout(result, op.axis) or result == expand_dims_layout(source, op.axis)
        case Broadcast():
            return source == unbroadcast_layout(result, op.x.type.shape)
        case Permute():
            return permute_layout(source, op.order) == result
        case Reshape():
            return reshape_layout(source, op.shape) == result
        case Split():
            return split_layout(source) == result


def _join_fits(op: Join) -> bool:
    if not op.lhs.type.rank:
        return True
    layouts = _tile_layouts([*op.operands, *op.results])
    return layouts[0] == layouts[1] == split_layout(layouts[2])


def _boundaries_fit(op: For | While | If) -> bool:
    groups: list[list[Value] | tuple[Value, ...]]
    match op:
        case For():
            groups = [op.results, op.inits, op.body.args[1:]]
        case While():
            groups = [op.results, op.inits, op.before.args, op.body.args]
        case If():
            groups = [op.results]
    return all(_same(same) for same in zip(*groups, strict=True))
