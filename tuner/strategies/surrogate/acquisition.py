"""How promising a candidate is: expected improvement of minimisation, and the normal distribution it needs."""

from __future__ import annotations

import math

import numpy as np

from .encoding import Vector

#: Coefficients of erfc for positive arguments, relative error 1.2e-7 everywhere: Numerical Recipes in C (1992), 6.2.
_ERFC: tuple[float, ...] = (
    -1.26551223,
    1.00002368,
    0.37409196,
    0.09678418,
    -0.18628806,
    0.27886807,
    -1.13520398,
    1.48851587,
)
_ERFC += (-0.82215223, 0.17087277)


def normal_cdf(x: Vector) -> Vector:
    """The distribution function of the standard normal, accurate to seven digits in both tails."""
    z = np.abs(x) / math.sqrt(2)
    t = 1 / (1 + z / 2)
    tail = 0.5 * t * np.exp(-z * z + np.polyval(_ERFC[::-1], t))
    return np.where(x > 0, 1 - tail, tail)


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
