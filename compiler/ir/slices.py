"""Backward slices: the operations that values are made of."""

from __future__ import annotations

from collections.abc import Iterable

from .core import Op, Value


def backward_slice(values: Iterable[Value], among: Iterable[Op]) -> set[Op]:
    """The operations of ``among`` that ``values`` are made of; an operation reads what is read in its regions.

    What decides whether they run, and what loops hand on to them, :func:`..tile.passes.dce.decided_by` has as well.
    """
    inside = set(among)
    needed: set[Op] = set()
    todo = list(values)
    while todo:
        op = todo.pop().op
        if op is not None and op in inside and op not in needed:
            needed.add(op)
            todo += op.reads
    return needed
