"""Instruction scheduling of products: one begins as soon as its operands are there.

Gradients of attention need two products before they can go on, scores and what the gradient of the output makes of the
values, and take exponents of the first one before they begin the second. The consumers of a ring find the operands of
both in shared memory. So the second product begins behind the first, and the exponents are computed under it. On an
H200 the kernel that sums up the gradient of queries takes 0.84 to 0.96 of its time in tiles of 128 rows, on eight
warps, and 0.92 in those of 64 rows and heads of 64 (benchmarks/results/2026-11-29-h200-turns, gradients.txt).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...hardware import WARPS_PER_GROUP, threads_of
from ...ir.core import Block, Function, Op
from ...ir.slices import backward_slice
from ...options import Schedule
from ...tile.control import For
from ...tile.elementwise import Constant
from ...tile.matmul import Dot
from ...tile.shape import Permute
from ..asynchronous import Receive, Release, Roles, Slot
from ..estimates import READY_REGISTERS_OF_A_GROUP, ROTATED_OTHER_REGISTERS
from ..streams.roles import consumer_registers


def begin_products(function: Function, schedule: Schedule) -> None:
    """Move products in loops of consumers up to the product before, where nothing between makes their operands or sums,
    in place."""
    most = consumer_registers(schedule) - ROTATED_OTHER_REGISTERS
    if schedule.num_warps <= WARPS_PER_GROUP:
        most = READY_REGISTERS_OF_A_GROUP
    for roles in function.ops_of(Roles):
        for loop in roles.consumer.ops_of(For):
            if _accumulators(loop.body) <= most * threads_of(schedule.num_warps):
                _begin(loop.body)


def _accumulators(body: Block) -> int:
    """Elements of all sums, which may be in use at once then."""
    return sum(op.result.type.size for op in body.ops if isinstance(op, Dot))


def _begin(body: Block) -> None:
    dots = [op for op in body.ops if isinstance(op, Dot)]
    for before, dot in zip(dots, dots[1:], strict=False):
        begin, end = body.ops.index(before) + 1, body.ops.index(dot)
        between = body.ops[begin:end]
        needed = _needed(dot, between)
        if needed is not None:
            rest = [op for op in between if op not in needed]
            body.ops[begin : end + 1] = [*needed, dot, *rest]


def _needed(dot: Dot, between: Sequence[Op]) -> list[Op] | None:
    """The operations ``between`` that bring the operands of ``dot``; None where any of them is more than a slot of a
    ring that nobody else uses there, seen from somewhere."""
    made = backward_slice(dot.operands, between)
    pipes = {op.pipe for op in made if isinstance(op, Slot)}
    same = [op for op in between if isinstance(op, Receive | Slot | Release) and op.pipe in pipes]
    if any(isinstance(op, Release) for op in same) or len([op for op in same if isinstance(op, Receive)]) > len(pipes):
        return None
    if not all(isinstance(op, Slot | Permute | Constant) for op in made):
        return None
    return [op for op in between if op in made or op in same]
