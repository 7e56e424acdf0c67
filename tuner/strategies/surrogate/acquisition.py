"""How promising a candidate is: expected improvement of minimisation, and the normal distribution it needs."""

from __future__ import annotations

import math

import numpy as np

from .encoding import Vector

_erfc = np.vectorize(math.erfc, otypes=[float])


def normal_cdf(x: Vector) -> Vector:
    """The distribution function of the standard normal, accurate in both tails."""
    result: Vector = 0.5 * _erfc(-x / math.sqrt(2))
    return result


def expected_improvement(mean: Vector, variance: Vector, best: float) -> Vector:
    """By how much a normal variable is below ``best`` on average, nothing where it is above.

    Jones, Schonlau and Welch, Efficient global optimization of expensive black-box functions (1998), equation 15.
    """
    deviation = np.sqrt(variance)
    u = (best - mean) / deviation
    density = np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)
    improvement: Vector = deviation * (density + u * normal_cdf(u))
    return np.maximum(improvement, 0.0)


def probability_of_improvement(mean: Vector, variance: Vector, best: float) -> Vector:
    """How probable it is that a normal variable is below ``best``."""
    return normal_cdf((best - mean) / np.sqrt(variance))
