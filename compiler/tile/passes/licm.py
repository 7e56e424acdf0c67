"""Loop-invariant code motion: pure operations leave the loops in which their operands do not change.

A loop may run zero times: nothing pure traps, on any target, not even a division by zero.
"""

from __future__ import annotations

from ...ir.core import Block, Effect, Function, Op, Value
from ..control import For, While


def licm(function: Function) -> Function:
    """Move loop-invariant pure operations in front of their loops."""
    _block(function.body)
    return function


def _block(block: Block) -> None:
    moved: list[Op] = []
    for op in block.ops:
        for nested in op.blocks:
            _block(nested)  # inner loops first: what they give up may leave this loop as well
        if isinstance(op, For | While):
            moved.extend(_hoist(op))
        moved.append(op)
    block.ops = moved


def _hoist(loop: For | While) -> list[Op]:
    """Take the invariant operations out of the regions of ``loop``; returns them in order."""
    inside = {value for block in loop.blocks for value in _defined(block)}
    hoisted: list[Op] = []
    for block in loop.blocks:
        stay: list[Op] = []
        for op in block.ops:
            if op.effect is Effect.PURE and inside.isdisjoint(_read(op)):
                hoisted.append(op)
                inside.difference_update(op.results)
            else:
                stay.append(op)
        block.ops = stay
    return hoisted


def _defined(block: Block) -> list[Value]:
    found = list(block.args)
    for op in block.walk():
        found.extend(op.results)
        for nested in op.blocks:
            found.extend(nested.args)
    return found


def _read(op: Op) -> set[Value]:
    """Values that ``op`` and its regions read from outside."""
    found = set(op.operands)
    for block in op.blocks:
        for nested in block.walk():
            found.update(nested.operands)
        found.difference_update(_defined(block))
    return found
