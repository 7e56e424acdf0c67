"""Checks of the GPU stage, on top of those that hold at every stage."""

from __future__ import annotations

from typing import TypeVar

from ..errors import IRError
from ..hardware import LANES
from ..ir.core import Function, Op, Value
from ..ir.verify import verify
from .layouts.fitting import problem_of

FunctionT = TypeVar("FunctionT", bound=Function)


def verify_gpu(function: FunctionT) -> FunctionT:
    """Check that every tile has a layout for all warps, and that the layouts of each operation fit together.

    Raises:
        IRError: naming the operation and the layouts.
    """
    verify(function)
    warps = function.warps
    for op in function.walk():
        for value in (*op.operands, *op.results):
            _check_value(op, value, warps)
        problem = problem_of(op)
        if problem:
            layouts = ", ".join(str(v.type) for v in (*op.operands, *op.results))
            raise IRError(f"{op!r} at {op.location}: {problem} ({layouts})")
    return function


def verify_rings(function: FunctionT) -> FunctionT:
    """Check a function in which what rings hold has its place in shared memory already, and all else has no layout.

    Raises:
        IRError: as ``verify``.
    """
    held = {value: value.type for op in function.walk() for value in op.results if value.type.shared is not None}
    try:
        for value, type in held.items():
            value.type = type.with_layout(None)
        verify(function)
    finally:
        for value, type in held.items():
            value.type = type
    return function


def _check_value(op: Op, value: Value, warps: int) -> None:
    layout = value.type.layout
    if not value.type.rank or value.type.shared is not None:
        return
    if layout is None:
        raise IRError(f"{op!r} at {op.location}: {value!r} has no layout")
    if layout.shape != value.type.shape or layout.lanes != LANES or layout.warps != warps:
        raise IRError(
            f"{op!r} at {op.location}: the layout of {value!r} is one of {layout.warps} warps for {layout.shape}"
        )
