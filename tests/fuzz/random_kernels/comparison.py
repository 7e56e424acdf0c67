"""What is wrong with what a launch left in memory."""

from __future__ import annotations

import numpy as np

from .families import RandomKernel
from .kinds import Array, decoded
from .memory import Memory, memory_of
from .statements import Contents


def compare(kernel: RandomKernel, expected: dict[str, Contents], after: dict[str, Array]) -> str:
    """What is wrong with the arrays after a launch; empty if nothing is."""
    for before in memory_of(kernel):
        got, wanted = after[before.name], expected.get(before.name)
        if wanted is None:
            if got.tobytes() != before.elements.tobytes():
                return f"{before.name}: an input was written"
            continue
        end = before.lead + len(wanted.values)
        margins = [(array[: before.lead].tobytes(), array[end:].tobytes()) for array in (got, before.elements)]
        if margins[0] != margins[1]:
            return f"{before.name}: written outside of the array"
        wrong = _differing(decoded(got[before.lead : end], before.kind), wanted, before)
        if wrong:
            return f"{before.name} ({before.kind.name}): {wrong}"
    return ""


def _differing(have: Array, wanted: Contents, before: Memory) -> str:
    initial = decoded(before.elements[before.lead : before.lead + len(have)], before.kind)
    stray = np.flatnonzero((have != initial) & ~wanted.touched)
    if len(stray):
        return f"{len(stray)} elements written that should not be, first {stray[0]}: {have[stray[0]]}"
    allowed = wanted.error * Memory.ALLOWED
    differ = have != wanted.values
    if before.kind.is_float:
        with np.errstate(invalid="ignore"):
            differ &= ~(np.abs(have - wanted.values) <= allowed)
    bad = np.flatnonzero(differ)
    if not len(bad):
        return ""
    first = bad[0]
    within = f" (within {allowed[first]:.3g})" if before.kind.is_float else ""
    found = f"{have[first]!r} instead of {wanted.values[first]!r}{within}"
    return f"WRONG in {len(bad)} of {len(have)}, {first} to {bad[-1]}: {found}"
