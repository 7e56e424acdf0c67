"""Plain operations: what a thread does by itself, and may do in other places or more often than it is written."""

from __future__ import annotations

from ...ir.core import Effect, Op
from ...tile.control import Yield
from ...tile.elementwise import IntDiv, Rem
from ...tile.passes.numbers import known_number
from ...tile.records import Record
from ..ops import VectorLoad, VectorStore


def is_plain(op: Op) -> bool:
    """Whether ``op`` computes in registers, records, or loads or stores what no other program waits for."""
    match op:
        case VectorLoad(volatile=volatile):
            return not volatile
        case VectorStore() | Record() | Yield():
            return True
    return op.effect is Effect.PURE and not op.blocks and not op.mnemonic.startswith("gpu.")


def may_run_anyway(op: Op) -> bool:
    """Whether a plain operation, if its loads are masked off, may run where it is not wanted: it writes nothing, and
    divides integers by nothing that may be zero."""
    if isinstance(op, IntDiv | Rem) and op.lhs.type.is_integer and not known_number(op.rhs):
        return False
    return is_plain(op) and not isinstance(op, VectorStore | Record)
