"""Which loads may wait for the store of what is made of them, to be done with it chunk by chunk.

A chunk that is stored must not be one that is still to be loaded. That is so where load and store have one pointer,
whose elements are all different; of two pointers the generated code finds out (:mod:`.spans`).
"""

from __future__ import annotations

from ...ir.core import Value
from ...tile import elementwise as ops
from ...tile import memory, shape


def may_interleave(load: memory.Load, store: memory.Store) -> bool:
    """Whether each chunk of ``load`` may be read just before the same chunk of ``store`` is written, at least where
    :func:`~.spans.in_turns` is true."""
    written = _moving(store.pointer)
    if written is None or not all(d in written for d, n in enumerate(store.pointer.type.shape) if n > 1):
        return False
    return load.pointer is store.pointer or _moving(load.pointer) is not None


def _moving(value: Value) -> frozenset[int] | None:
    """The dimensions along which ``value`` goes in equal steps, one term for each; None for anything else.

    Steps that are arguments are taken not to be 0, and not to lead from one row into the next.
    """
    op = value.op
    match op:
        case _ if not value.type.rank:
            return frozenset()
        case ops.Constant() | shape.Splat():
            return frozenset()
        case shape.Arange():
            return frozenset({0})
        case ops.Hint() | ops.Cast() | ops.Bitcast() | shape.Broadcast():
            return _moving(op.x)
        case shape.ExpandDims():
            inner = _moving(op.x)
            return inner and frozenset(d + (d >= op.axis) for d in inner)
        case shape.Permute():
            inner = _moving(op.x)
            return inner and frozenset(d for d, source in enumerate(op.order) if source in inner)
        case ops.AddPtr():
            return _joined(_moving(op.pointer), _moving(op.offset))
        case ops.Add() | ops.Sub():
            return _joined(_moving(op.lhs), _moving(op.rhs))
        case ops.Mul():
            x, y = _moving(op.lhs), _moving(op.rhs)
            return _joined(x, y) if x == frozenset() or y == frozenset() else None
    return None


def _joined(x: frozenset[int] | None, y: frozenset[int] | None) -> frozenset[int] | None:
    """The dimensions of a sum: two terms along one dimension may cancel out."""
    return None if x is None or y is None or x & y else x | y
