"""Checks of the GPU stage, on top of those that hold at every stage."""

from __future__ import annotations

from typing import TypeVar

from ..errors import IRError
from ..ir.core import Function, Op, Value
from ..ir.verify import verify
from ..layout import LayoutError, LinearLayout, slice_layout
from ..tile.assembly import InlineAssembly
from ..tile.control import For, If, While
from ..tile.map import MapElementwise
from ..tile.memory import AtomicCAS, AtomicRMW, Load, Store
from ..tile.movement import Butterfly, Gather
from ..tile.reduction import Histogram, Reduce, Scan
from .asynchronous import FetchTile
from .layouts.views import is_view, operand_layout, result_layout
from .ops import Agree

FunctionT = TypeVar("FunctionT", bound=Function)


def verify_gpu(function: FunctionT) -> FunctionT:
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
    if not value.type.rank or value.type.shared is not None:
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
        case FetchTile():
            fits = op.mask is None or _same([op.pointer, op.mask])
        case Load() | Store() | AtomicRMW() | AtomicCAS():
            fits = _same([*op.operands, *op.results])
        case Reduce():
            layouts = _tile_layouts(op.inputs)
            kept = slice_layout(layouts[0], op.axis)
            fits = _same(op.inputs) and all(got == kept for got in _tile_layouts(op.results))
        case Agree() | Scan() | Butterfly() | MapElementwise() | InlineAssembly():
            fits = _same([*op.operands, *op.results])
        case Gather():
            fits = _same([op.index, op.result])
        case Histogram():
            fits = _same(op.operands)
        case _ if is_view(op):
            fits = not op.results[0].type.rank or not op.operands[0].type.rank or _view_fits(op)
        case For() | While() | If():
            fits = _boundaries_fit(op)
        case _ if op.elementwise:
            fits = _same([*op.operands, *op.results])
        case _:
            fits = True
    return "" if fits else "the layouts do not fit together"


def _view_fits(op: Op) -> bool:
    if not _same(op.operands) or not _same(op.results):
        return False
    (source, *_), (result, *_) = _tile_layouts(op.operands), _tile_layouts(op.results)
    try:
        return source == operand_layout(op, result) or result == result_layout(op, source)
    except LayoutError:
        return False  # the two halves of a pair are not neighbours


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
