"""A Gaussian process over few points: Matern-5/2 kernel, one length-scale a coordinate, parameters by MAP.

Formulas: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25, 2.26, 4.17 and 5.9.
The signal has unit variance: values are standardised before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .encoding import Matrix, Vector

SQRT5 = math.sqrt(5.0)
#: Added to the noise: the kernel matrix of nearly equal points stays positive definite.
JITTER = 1e-6
#: Logarithms of parameters stay within this of the median of their prior, four standard deviations.
REACH = 4.0
# Rprop: steps grow while the sign of a derivative stays and shrink when it changes.
FIRST_STEP, LEAST_STEP, GREATEST_STEP = 0.2, 1e-3, 0.6
GROWTH, DECAY = 1.3, 0.5


@dataclass(frozen=True)
class Matern:
    """``theta``: logarithms of the length-scales, and last of the noise variance."""

    theta: Vector

    @property
    def noise(self) -> float:
        """Variance of an observation, jitter included."""
        return math.exp(self.theta[-1]) + JITTER

    def between(self, a: Matrix, b: Matrix) -> Matrix:
        """Covariances of points ``a`` with points ``b``, noise not included; shape (len(a), len(b))."""
        scales = np.exp(-self.theta[:-1])
        a, b = a * scales, b * scales
        squared = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
        return matern52(np.maximum(squared, 0.0))

    def inverse_factor(self, points: Matrix) -> Matrix:
        """The inverse of the lower Cholesky factor of the points' covariance, noise included."""
        covariance = self.between(points, points)
        covariance[np.diag_indices_from(covariance)] = 1.0 + self.noise
        inverse: Matrix = np.linalg.inv(np.linalg.cholesky(covariance))
        return inverse


@dataclass(frozen=True)
class MaternPrior:
    """Log-normal priors, of deviation 1 in the logarithm, by their medians."""

    length: float = 1.0
    noise: float = 1e-2

    def medians(self, dimensions: int) -> Vector:
        """The logarithms of the medians, as a kernel's ``theta``."""
        return np.append(np.full(dimensions, math.log(self.length)), math.log(self.noise))


def matern52(squared: Matrix) -> Matrix:
    """The kernel of squared scaled distances."""
    distance = SQRT5 * np.sqrt(squared)
    value: Matrix = (1 + distance + 5 / 3 * squared) * np.exp(-distance)
    return value


class Likelihood:
    """The negative logarithm of the posterior density of a kernel's parameters, up to a constant."""

    def __init__(self, points: Matrix, values: Vector, prior: MaternPrior) -> None:
        self.medians = prior.medians(points.shape[1])
        self._values = values
        self._squares = ((points[:, None] - points[None]) ** 2).reshape(len(points) ** 2, -1)

    def at(self, theta: Vector) -> tuple[float, Vector]:
        """Value and gradient at ``theta``."""
        count = len(self._values)
        weights = np.exp(-2 * theta[:-1])
        squared = (self._squares @ weights).reshape(count, count)
        distance = SQRT5 * np.sqrt(squared)
        decay = np.exp(-distance)
        noise = math.exp(theta[-1])
        covariance = (1 + distance + 5 / 3 * squared) * decay
        covariance[np.diag_indices(count)] += noise + JITTER
        factor = np.linalg.cholesky(covariance)
        inverse_factor = np.linalg.inv(factor)
        inverse = inverse_factor.T @ inverse_factor
        alpha = inverse @ self._values
        off = theta - self.medians
        value = 0.5 * self._values @ alpha + np.log(factor.diagonal()).sum() + 0.5 * off @ off
        inner = inverse - np.outer(alpha, alpha)
        # d matern52 / d log length = 5/3 (1 + sqrt5 r) exp(-sqrt5 r) * squared distance along that coordinate.
        slope = (inner * (5 / 3 * (1 + distance) * decay)).ravel()
        gradient = np.append(0.5 * (slope @ self._squares) * weights, 0.5 * noise * np.trace(inner))
        return float(value), gradient + off


def fit(points: Matrix, values: Vector, start: Vector | None, prior: MaternPrior, steps: int) -> Matern:
    """The best of ``steps`` steps of Rprop from ``start`` (the medians of the prior if None).

    A few dozen steps are enough: what proposals need of a kernel is which coordinates matter.
    """
    likelihood = Likelihood(points, values, prior)
    theta = likelihood.medians if start is None else start
    step = np.full(len(theta), FIRST_STEP)
    before = np.zeros(len(theta))
    best, lowest = theta, math.inf
    for _ in range(steps):
        value, gradient = likelihood.at(theta)
        if value < lowest:
            best, lowest = theta, value
        turn = np.sign(gradient * before)
        step = np.clip(step * np.where(turn > 0, GROWTH, np.where(turn < 0, DECAY, 1)), LEAST_STEP, GREATEST_STEP)
        before = np.where(turn < 0, 0, gradient)
        theta = np.clip(theta - np.sign(before) * step, likelihood.medians - REACH, likelihood.medians + REACH)
    return Matern(best)
