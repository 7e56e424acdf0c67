"""Where arrays end: promises under which threads read and write whole vectors of boxes that no engine copies."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from ...hardware import VECTOR_BYTES
from ...ir.core import Function
from ...ir.types import Scalar
from ...launch_recipe import Guard
from ...tile.axis import analyze
from ...tile.blocks import BlockLoad, BlockStore
from .boxes import contiguous_axis


def align_edges(function: Function, denied: frozenset[Guard]) -> tuple[Guard, ...]:
    """Let ``function`` count on sizes that are multiples of a vector, except where that is ``denied``; returns what it
    counts on.

    A bound that nothing is known of may end an array between any two elements, so each would be checked and moved by
    itself.
    """
    facts = analyze(function)
    parameters = {p.value: p for p in function.parameters}
    wanted: dict[Guard, None] = {}
    for op in function.walk():
        if not isinstance(op, BlockLoad | BlockStore) or (axis := contiguous_axis(op)) is None:
            continue
        tile = op.result.type if isinstance(op, BlockLoad) else op.value.type
        dimension = len(op.sizes) - tile.rank + axis
        parameter = parameters.get(op.sizes[dimension])
        if parameter is None or not op.checked[dimension] or not isinstance(tile.elem, Scalar):
            continue
        vector = min(VECTOR_BYTES // max(1, tile.elem.bytes), tile.shape[axis])
        vector = gcd(vector, facts[op.offsets[dimension]].divisibility[0])
        guard = Guard(parameter.name, "multiple", vector)
        if parameter.divisibility % vector and guard not in denied:
            wanted[guard] = None
    for guard in wanted:
        parameter = next(p for p in function.parameters if p.name == guard.parameter)
        parameter.divisibility = max(parameter.divisibility, guard.value)
    return tuple(_largest(wanted))


def _largest(guards: dict[Guard, None]) -> Iterator[Guard]:
    """Of several promises about a size the one that implies the others: all are powers of two."""
    for guard in guards:
        if not any(other.parameter == guard.parameter and other.value > guard.value for other in guards):
            yield guard
