"""The expression of a tile: the lazy tiles that it is computed from, down to what is in memory."""

from __future__ import annotations

from collections.abc import Container, Iterator

from ...ir.core import Value
from ...tile import shape
from .rule_sets import reads_buffer

#: A value, and whether it is read at the loop's own coordinates.
Reading = tuple[Value, bool]


def operands_first(reading: Reading, stored: Container[Value], seen: set[Reading]) -> Iterator[Reading]:
    """All readings behind one, and itself, each behind those of its operands; again for each of their readers, but
    without what is behind them.

    ``seen``: readings whose operands have come; more are added. ``stored`` may get what comes while it does.
    """
    for operand in _operands(reading, stored, seen):
        yield from operands_first(operand, stored, seen)
    yield reading


def tiles_read(value: Value, stored: Container[Value]) -> dict[Value, bool]:
    """All tiles that computing ``value`` reads, with those that are read in memory and ``value`` itself, and whether
    only at the same coordinates."""
    found: dict[Value, bool] = {}
    seen: set[Reading] = set()
    work: list[Reading] = [(value, True)]
    while work:
        tile, same = reading = work.pop()
        found[tile] = found.get(tile, True) and same
        if tile.op is not None and tile not in stored:
            work += [(inner, False) for inner in reads_buffer(tile.op) if (inner, False) not in seen]
        work += _operands(reading, stored, seen)
    return found


def _operands(reading: Reading, stored: Container[Value], seen: set[Reading]) -> list[Reading]:
    """The tiles that a lazy one is computed from chunk by chunk; none the second time."""
    value, same = reading
    op = value.op
    if reading in seen or not value.type.rank or value in stored or op is None:
        return []
    seen.add(reading)
    moved = isinstance(op, (shape.ExpandDims, shape.Broadcast, shape.Permute, shape.Reshape))
    inside = set(reads_buffer(op))
    return [(v, same and not moved) for v in op.operands if v.type.rank and v not in inside]
