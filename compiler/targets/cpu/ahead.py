"""Asking for the row that the next program will read, while this one's is worked on.

Programs that read a row each go through memory in jumps: processors fetch ahead within a page, and a row of a few
kilobytes is in another one. Where the addresses of a load are those of the program before plus a number of bytes that
is known when the program begins, the code that reads also asks for what the next program will.
"""

from __future__ import annotations

from ...ir.core import Op, Value
from ...ir.types import Pointer
from ...llvm.typed import Typed, constant
from ...tile import elementwise as ops
from ...tile import memory, program, shape
from .emission import Emission
from .lower import CpuLowering

CACHE_LINE = 64  # bytes
#: Bytes of a row below which all programs share pages, and beyond which the next row would push this one out of a
#: first-level cache of 32 KiB.
LEAST_ROW, LARGEST_ROW = 1 << 9, 1 << 14

_VIEWS = (shape.Splat, shape.ExpandDims, shape.Broadcast, shape.Reshape, shape.Permute, ops.Hint)


def ask_ahead(emission: Emission, op: memory.Load, base: Typed, level: int) -> None:
    """Ask for the chunk at ``base`` of the program behind this one, if ``op`` reads rows in equal steps."""
    size = op.result.type.elem.bytes
    if not LEAST_ROW <= op.result.type.size * size <= LARGEST_ROW:
        return
    with emission.nest.at(0):
        step = step_of(emission.low, op.pointer)
    if step is None or step.name == "0":
        return
    with emission.nest.at(level):
        there = emission.e.offset(base, step, "i8")
        for line in range(-(-emission.lanes * size // CACHE_LINE)):
            place = emission.e.offset(there, constant("i64", line * CACHE_LINE), "i8") if line else there
            operands = [("ptr", place.name), ("i32", "0"), ("i32", "3"), ("i32", "1")]
            emission.e.function.call("void", "llvm.prefetch.p0", operands)


def step_of(low: CpuLowering, value: Value) -> Typed | None:
    """What the next program along axis 0 adds to all elements of ``value``: an i64, in bytes for pointers; None where
    that is not known."""
    op = value.op
    if op is None:
        return constant("i64", 0) if value in low.parameters else None
    match op:
        case program.ProgramId():
            return constant("i64", int(op.axis == 0))
        case ops.Constant() | shape.Arange() | program.NumPrograms():
            return constant("i64", 0)
        case ops.Cast() if not isinstance(op.to, Pointer) and op.to.is_integer and op.x.type.scalar.is_integer:
            return step_of(low, op.x)
        case ops.Add() | ops.Sub() | ops.AddPtr() | ops.Mul():
            return _of_sum(low, op)
    return step_of(low, op.operands[0]) if isinstance(op, _VIEWS) else None


def _of_sum(low: CpuLowering, op: Op) -> Typed | None:
    left, right = (step_of(low, x) for x in op.operands)
    if left is None or right is None:
        return None
    zero = constant("i64", 0)
    if isinstance(op, ops.Mul):
        if left != zero and right != zero:
            return None
        factor, step = (op.operands[0], right) if left == zero else (op.operands[1], left)
        return zero if step == zero else _times(low, step, factor)
    if isinstance(op, ops.AddPtr) and right != zero:
        right = low.e.binary("mul", right, constant("i64", op.pointer.type.pointee.bytes))
    if right == zero:
        return left
    return low.e.binary("sub" if isinstance(op, ops.Sub) else "add", left, right)


def _times(low: CpuLowering, step: Typed, factor: Value) -> Typed | None:
    """``step`` times a number that all elements of ``factor`` are."""
    while isinstance(factor.op, _VIEWS) and factor.type.rank:
        factor = factor.op.operands[0]
    if factor.type.rank or isinstance(factor.type.elem, Pointer) or not factor.type.scalar.is_integer:
        return None
    scalar = low.scalar(factor).value
    wide = scalar if scalar.type == "i64" else low.e.cast("sext", scalar, "i64")
    return wide if step == constant("i64", 1) else low.e.binary("mul", step, wide)
