"""What is done in program order: statements, and scalars; tiles wait until somebody reads them."""

from __future__ import annotations

from ...ir.core import Block, Effect, Op
from ...tile import memory
from . import elementwise
from .affine import divisor_of, known_number
from .chunk import Uniform
from .lower import CpuLowering
from .nests import materialise
from .rule_sets import is_lazy, statements


def run(low: CpuLowering, block: Block) -> None:
    """Lower the operations of ``block`` up to its terminator."""
    for op in block.ops:
        if op.effect is Effect.TERMINATOR:
            break
        low.live.define(op.results)
        if is_lazy(op):
            _put_off(low, op)
        else:
            _do(low, op)


def _put_off(low: CpuLowering, op: Op) -> None:
    """Leave ``op`` to the readers of its results, but for those that the plan wants at once."""
    if isinstance(op, memory.Load) and low.live.uses.get(op.result):
        low.pending_loads[op.result] = None
    if not any(low.live.uses.get(r) for r in op.results):
        low.live.retire(op)
    for result in op.results:
        if result in low.plan.at_once and low.live.uses.get(result):
            materialise(low, result)


def _do(low: CpuLowering, op: Op) -> None:
    """Emit ``op`` where the code stands."""
    if op.elementwise and not op.results[0].type.rank:
        _compute_scalar(low, op)
    else:
        statements.find(op)(low, op)
    for operand in op.operands:
        low.live.release(operand)
    for result in op.results:
        if not low.live.uses.get(result):
            low.live.drop(result)


def _compute_scalar(low: CpuLowering, op: Op) -> None:
    """An elementwise operation of rank 0, once a program."""
    args = [low.scalar(v) for v in op.operands]
    made = elementwise.rules.find(op)(low.e, op, *(a.value for a in args))
    number = known_number(op, args)
    low.scalars[op.results[0]] = Uniform(made, 0, number, divisor_of(op, args))
