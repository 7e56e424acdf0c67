"""Checks that hold for every function at every stage."""

from __future__ import annotations

from ..errors import IRError
from .core import Block, Effect, Function, Op, Value


def verify(function: Function) -> Function:
    """Check SSA dominance, types and terminators; return the function.

    Raises:
        IRError: a value is used before it is defined, an operation's types no longer follow from its operands, or a
            terminator is not last.
    """
    _verify_block(function.body, set())
    return function


def _verify_block(block: Block, visible: set[Value]) -> None:
    visible = visible | set(block.args)
    for position, op in enumerate(block.ops):
        for operand in op.operands:
            if operand not in visible:
                raise IRError(f"{op!r} at {op.location} reads {operand!r} before it is defined")
        if op.effect is Effect.TERMINATOR and position != len(block.ops) - 1:
            raise IRError(f"{op!r} must be the last operation of its block")
        for nested in op.blocks:
            _verify_block(nested, visible)
        _verify_types(op)
        visible.update(op.results)


def _verify_types(op: Op) -> None:
    # Shapes and element types follow from the operands; layouts are chosen by the layout pass, which has its own check.
    inferred = tuple(t.with_layout(None) for t in op.infer())
    held = tuple(r.type.with_layout(None) for r in op.results)
    if inferred != held:
        raise IRError(
            f"{op!r} at {op.location}: its operands give {', '.join(map(str, inferred))},"
            f" its results are {', '.join(map(str, held))}"
        )
