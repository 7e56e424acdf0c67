"""What an author promises about a value holds for everything that reads it afterwards, as in Triton.

``tl.multiple_of(x, 16)`` by itself, without ``x = ``, is how many kernels write it: later readers of ``x`` in the same
block, and in the blocks inside, read the result of the hint.
"""

from __future__ import annotations

from ...ir.core import Block, Effect, Function, Op, Value
from ..elementwise import Hint


def spread_promises(function: Function) -> Function:
    """Let what follows a hint read its result."""
    for block in list(function.body.nest()):
        if any(isinstance(op, Hint) for op in block.ops):
            _block(block)
    return function


def _block(block: Block) -> None:
    promised: dict[Value, Value] = {}
    for op in block.ops:
        # What is passed on unchanged should be seen to be.
        if promised and op.effect is not Effect.TERMINATOR:
            _read(op, promised)
        if isinstance(op, Hint):  # of a value, or of what an earlier hint said of it
            promised.update({value: op.result for value, known in promised.items() if known is op.x})
            promised[op.x] = op.result


def _read(op: Op, promised: dict[Value, Value]) -> None:
    op.replace_operands(promised)
    for nested in op.blocks:
        for inner in nested.ops:
            if inner.effect is not Effect.TERMINATOR:
                _read(inner, promised)
