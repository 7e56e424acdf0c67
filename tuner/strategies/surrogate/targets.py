"""What the process models: logarithms of times, the slow ones compressed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .encoding import Vector

#: Logarithms above this quantile keep this part of their excess: how slow the slow ones are need not be learnt.
QUANTILE, KEPT = 0.6, 0.2
#: Times below this part of the median count as that: a clock that says 0 ns must not outweigh everything else.
LEAST = 1e-3


@dataclass(frozen=True)
class Targets:
    """``values`` have mean 0 and deviation 1; the logarithms were ``unit * values + mean``."""

    values: Vector
    unit: float
    mean: float

    @property
    def logs(self) -> Vector:
        """The logarithms."""
        return self.unit * self.values + self.mean


def log_times(times: Vector) -> Vector:
    """Natural logarithms of times in any unit."""
    return np.log(np.maximum(times, LEAST * max(float(np.median(times)), 1e-300)))


def standardised(logs: Vector, *, compress: bool = True) -> Targets:
    """Logarithms of times as targets; ``compress``: the slow ones are drawn together."""
    if compress:
        knee = np.quantile(logs, QUANTILE)
        logs = np.where(logs > knee, knee + KEPT * (logs - knee), logs)
    mean, unit = float(logs.mean()), float(logs.std()) + 1e-9
    return Targets((logs - mean) / unit, unit, mean)
