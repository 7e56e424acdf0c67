"""The tables of the CPU target's rules; importing the modules of :mod:`.catalogue` fills them."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Op, Value
from ...ir.rules import RuleSet
from ...tile import memory
from .chunk import Chunk

Statement = Callable[..., None]  # (CpuLowering, op)
ViewRule = Callable[..., Chunk]  # (Emission, op, value, coords)

#: Operations that are done in program order.
statements: RuleSet[Statement] = RuleSet("cpu")
#: Operations whose tiles are computed where they are read, beside elementwise ones.
views: RuleSet[ViewRule] = RuleSet("cpu")
#: Of an operation, the operands that it needs in memory, not chunk by chunk: each view has a rule, statements that need
#: none have none.
buffers: RuleSet[Callable[..., tuple[Value, ...]]] = RuleSet("cpu")


def is_lazy(op: Op) -> bool:
    """Whether the tile results of ``op`` are computed where they are read."""
    if not any(r.type.rank for r in op.results):
        return False
    if isinstance(op, memory.Load):
        return not op.volatile
    return op.elementwise or type(op) in views.rules


def reads_buffer(op: Op) -> tuple[Value, ...]:
    """The operands that ``op`` needs in memory, not chunk by chunk."""
    rule = buffers.rules.get(type(op))
    return () if rule is None else rule(op)
