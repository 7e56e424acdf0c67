"""What a configuration does about what bounds the fastest one, in words.

The bound of the fastest variant names facts of its code and the way they should move: fewer registers where registers
keep warps away, more programs where the device is not full. Which configurations move them so is predicted
(:mod:`.facts`). This explains proposals and does not choose them: counting the expected improvement of such candidates
three times, and adding moves of two parameters, found nothing sooner on modelled GPU products than the process alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...measure.measurement import Bound, Measurement
from .encoding import Levels
from .facts import Fact, FactModel


@dataclass(frozen=True)
class Remedy:
    """``fact`` becomes ``factor`` times what it was, or goes beyond; ``words`` say so."""

    fact: Fact
    factor: float
    words: str


_MORE_WARPS = Remedy("resident_warps", 1.3, "more warps at once")
_LONGER_RINGS = Remedy("slots", 1.3, "longer rings")

#: For each bound, remedies of which any one will do, and what they are against.
REMEDIES: Mapping[Bound, tuple[str, tuple[Remedy, ...]]] = {
    "memory": ("memory traffic", (Remedy("programs", 0.7, "larger tiles"), _LONGER_RINGS)),
    "compute": ("what stands beside products", (Remedy("programs", 0.7, "larger tiles"),)),
    "spills": ("spills", (Remedy("spill_bytes", 0.7, "fewer bytes spilled"),)),
    "parallelism": ("an idle part of the device", (Remedy("programs", 1.4, "more programs"),)),
    "tail": ("an unfilled last wave", (Remedy("programs", 1.4, "more programs"),)),
    "registers": ("few warps", (Remedy("registers", 0.85, "fewer registers"),)),
    "shared memory": ("few warps", (Remedy("shared_bytes", 0.75, "less shared memory"),)),
    "threads": ("few warps", (_MORE_WARPS,)),
    "latency": ("latency", (_MORE_WARPS, _LONGER_RINGS)),
}


class Remedies:
    """Learns what bounds variants and what their code is like. Says nothing until measurements come with facts."""

    def __init__(self, facts: FactModel) -> None:
        self._facts = facts
        self._bounds: dict[bytes, Bound | None] = {}

    def learn(self, row: Levels, measurement: Measurement) -> None:
        """Take what is known of a measured configuration."""
        self._bounds[row.tobytes()] = measurement.bound
        self._facts.learn(row, measurement)

    def of(self, best: Levels, row: Levels) -> str | None:
        """What ``row`` does about what bounds ``best``, in words; None if it does nothing, or nobody knows."""
        bound = self._bounds.get(best.tobytes())
        if bound is None:
            return None
        against, remedies = REMEDIES[bound]
        found = next((remedy for remedy in remedies if self._is(remedy, best, row)), None)
        return None if found is None else f"{found.words} against {against}"

    def _is(self, remedy: Remedy, best: Levels, row: Levels) -> bool:
        """Whether ``row`` moves the fact as far as the remedy wants."""
        predicted = self._facts.predicted(remedy.fact, np.stack([best, row]))
        if predicted is None:
            return False
        change, wanted = float(predicted[1] - predicted[0]), math.log2(remedy.factor)
        return change >= wanted if wanted > 0 else change <= wanted
