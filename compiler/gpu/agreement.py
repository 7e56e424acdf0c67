"""Uniformity: threads of a program agree on what decides where it goes.

Every thread reads a scalar for itself, and every thread that holds a copy of an element. Where another program changes
the array meanwhile, they may read different values, such as a flag before and after it was set; with these they would
take different branches, and meet at barriers in different turns of a loop. So what was read that way and decides about
control flow is the value of one thread, for all.
"""

from __future__ import annotations

from ..ir.core import Block, Function, Value
from ..tile.control import For, If, While
from ..tile.memory import Load
from ..tile.passes.dce import decided_by
from .arrays import Arrays
from .memory.scratch import is_shared_by_threads
from .ops import Agree


def agree_on_control(function: Function) -> None:
    """Insert :class:`~.ops.Agree` behind such loads, in place."""
    loads = [load for load in function.ops_of(Load) if is_shared_by_threads(load.result)]
    deciding = _deciding(function)
    if not loads or not deciding or function.warps == 1:  # a warp's threads read at the same time
        return
    arrays = Arrays(function)
    changing = arrays.written(function)
    unsteady = {op for op in loads if op.is_awaited or arrays.accessed(op) in changing}
    unsteady &= decided_by(function, *deciding) if unsteady else set()
    if unsteady:
        _insert(function.body, {op.result for op in unsteady}, {})


def _deciding(function: Function) -> list[Value]:
    """What branches, and how often loops are run, depends on."""
    return [value for op in function.walk() if isinstance(op, For | If | While) for value in op.deciding]


def _insert(block: Block, read: set[Value], agreed: dict[Value, Value]) -> None:
    out = []
    for op in block.ops:
        op.replace_operands(agreed)
        for nested in op.blocks:
            _insert(nested, read, agreed)
        out.append(op)
        if op.results and op.results[0] in read:
            made = Agree(op.results[0])
            made.location = op.location
            agreed[op.results[0]] = made.result
            out.append(made)
    block.ops = out
