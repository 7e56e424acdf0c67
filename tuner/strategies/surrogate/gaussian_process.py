"""A Gaussian process over few points: Matern-5/2 kernel, one length-scale a coordinate, parameters by MAP.

Formulas: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25, 2.26, 4.17 and 5.9.
The signal has unit variance: values are standardised before.

Coordinates are levels of parameters. Two that differ are apart by their squared difference and by a jump, however near
they are: what 96 threads take need not lie between what 64 and 128 take. How great the jump is beside the differences
is fitted like the lengths. The sum is a squared Euclidean distance, as each level may have an axis of its own: the
kernel is positive definite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .encoding import Matrix, Vector

Single: TypeAlias = NDArray[np.float32]

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
    """``theta``: logarithms of the length-scales, then of the jump (the squared distance between any two levels of a
    parameter, besides that of their coordinates, which is 1 at most), and last of the noise variance."""

    theta: Vector

    @property
    def jump(self) -> float:
        """Squared distance between levels that differ."""
        return math.exp(self.theta[-2])

    @property
    def noise(self) -> float:
        """Variance of an observation, jitter included."""
        return math.exp(self.theta[-1]) + JITTER

    def between(self, a: Matrix, b: Matrix) -> Matrix:
        """Covariances of points ``a`` with points ``b``, noise not included; shape (len(a), len(b)).

        Single precision inside, six times as fast: its error, 1e-7, is far below the noise of any observation.
        """
        scales = np.exp(-self.theta[:-2])
        left, right = a * scales, b * scales
        squared = (left * left).sum(1)[:, None] + (right * right).sum(1) - 2 * left @ right.T
        squared += differing(a, b, self.jump * scales**2)
        return matern52(np.maximum(squared, 0.0).astype(np.float32)).astype(np.float64)

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
    jump: float = 0.05
    noise: float = 1e-2

    def medians(self, dimensions: int) -> Vector:
        """The logarithms of the medians, as a kernel's ``theta``."""
        return np.append(np.full(dimensions, math.log(self.length)), np.log([self.jump, self.noise]))


def differing(a: Matrix, b: Matrix, weights: Vector) -> Single:
    """For points ``a`` and ``b`` the sum of the weights of the coordinates in which they differ; shape
    (len(a), len(b))."""
    levels = [np.unique(column) for column in a.T]
    mine = [np.zeros((len(a), 0), bool), *(x[:, None] == known for x, known in zip(a.T, levels, strict=True))]
    theirs = [np.zeros((len(b), 0), bool), *(x[:, None] == known for x, known in zip(b.T, levels, strict=True))]
    heights = np.repeat(weights, [len(known) for known in levels]).astype(np.float32)
    # OpenBLAS computes with what lies behind the end of a short row, too, and drops it: now and then that is no number.
    with np.errstate(invalid="ignore"):
        same: Single = (np.concatenate(mine, axis=1) * heights) @ np.concatenate(theirs, axis=1).astype(np.float32).T
    return np.float32(weights.sum()) - same


def matern52(squared: Single) -> Single:
    """The kernel of squared scaled distances."""
    polynomial, decay = _matern52_parts(squared)
    polynomial *= decay
    return polynomial


def _matern52_parts(squared: Single) -> tuple[Single, Single]:
    """Polynomial and exponential of the kernel; the kernel is their product."""
    distance = np.sqrt(squared)
    distance *= np.float32(SQRT5)
    polynomial = squared * np.float32(5 / 3)
    polynomial += distance
    polynomial += np.float32(1)
    np.negative(distance, out=distance)
    return polynomial, np.exp(distance, out=distance)


class Likelihood:
    """The negative logarithm of the posterior density of a kernel's parameters, up to a constant."""

    def __init__(self, points: Matrix, values: Vector, prior: MaternPrior) -> None:
        self.medians = prior.medians(points.shape[1])
        self._values = values
        apart = (points[:, None] - points[None]).reshape(len(points) ** 2, -1).astype(np.float32)
        self._squares = apart**2
        self._differ = (apart != 0).astype(np.float32)

    def at(self, theta: Vector) -> tuple[float, Vector]:
        """Value and gradient at ``theta``."""
        count = len(self._values)
        weights, jump = np.exp(-2 * theta[:-2]), math.exp(theta[-2])
        jumps = np.float32(jump) * (self._differ @ weights.astype(np.float32))
        squared = self._squares @ weights.astype(np.float32) + jumps
        polynomial, decay = _matern52_parts(squared)
        noise = math.exp(theta[-1])
        covariance = (polynomial * decay).reshape(count, count).astype(np.float64)
        covariance[np.diag_indices(count)] = 1.0 + noise + JITTER
        factor = np.linalg.cholesky(covariance)
        inverse_factor = np.linalg.inv(factor)
        inverse = inverse_factor.T @ inverse_factor
        alpha = inverse @ self._values
        off = theta - self.medians
        value = 0.5 * self._values @ alpha + np.log(factor.diagonal()).sum() + 0.5 * off @ off
        inner = inverse - np.outer(alpha, alpha)
        # d matern52 / d log length = 5/3 (1 + sqrt5 r) exp(-sqrt5 r) * squared distance along that coordinate, and with
        # respect to the logarithm of the jump -1/2 of that * what jumps add; the polynomial is 1 + sqrt5 r + 5/3 r^2.
        slope = inner.ravel().astype(np.float32) * (polynomial - np.float32(5 / 3) * squared) * decay
        along = slope @ self._squares + np.float32(jump) * (slope @ self._differ)
        lengths = 5 / 6 * along.astype(np.float64) * weights
        gradient = np.append(lengths, [-5 / 12 * float(slope @ jumps), 0.5 * noise * np.trace(inner)])
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
