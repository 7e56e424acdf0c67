"""Waves: how many programs each processor runs one after the other, by which times of other shapes are corrected.

A product of 4096 x 4096 in tiles of 128 x 256 is 512 programs, four for each of 132 SMs; one of
128 x 8192 is 32 programs, and three quarters of the device have nothing to do. What a configuration takes for a wave
carries over from one to the other, what it takes for all of them does not: of 34 configurations of bf16 products on an
H200, predicted from a search of 4096^3, the rank correlation with the measured times is -0.13 without waves and 0.67
with them for 128 x 8192 x 8192, -0.58 and 0.87 for 1024^3, and 0.81 to 0.94 both ways for six larger ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

from deuteron.compiler.errors import DeuteronError

from ..space import Configuration
from ..workloads import Problem, WorkloadSpec


class Waves:
    """Waves of a workload's configurations at any shape, on a device of so many ``processors``: SMs of a GPU,
    cores of a CPU."""

    def __init__(self, spec: WorkloadSpec, dtype: str, processors: int) -> None:
        self._spec, self._dtype, self._processors = spec, dtype, processors
        self._problems: dict[tuple[tuple[str, int], ...], Problem] = {}

    def at(self, shape: Mapping[str, int], config: Configuration) -> float | None:
        """Programs for each processor, at least 1: one that has nothing to do makes the others no faster. None where
        the workload has no such shape or the configuration no grid there."""
        with suppress(DeuteronError):
            return max(1.0, math.prod(self._problem(shape).grid(config)) / self._processors)
        return None

    def _problem(self, shape: Mapping[str, int]) -> Problem:
        key = tuple(sorted(shape.items()))
        if key not in self._problems:
            self._problems[key] = Problem(self._spec, dict(shape), self._dtype)
        return self._problems[key]
