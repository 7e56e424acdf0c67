"""The posterior of a Gaussian process on a pool of candidates, which grows by a point at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .encoding import Matrix, Vector
from .gaussian_process import Matern

ROOM = 64
#: No variance is less: a candidate that lies on a point keeps a finite improvement.
LEAST_VARIANCE = 1e-10


class PoolPosterior:
    """Given observations at ``points``, what a process with ``kernel`` and mean 0 says of ``pool``.

    Kept are the inverse L^-1 of the Cholesky factor of the points' covariance and the product L^-1 k(points, pool). A
    further point is one more row of both, so that it costs O(n^2 + n m) for n points and m candidates, and dropping the
    last points costs nothing. Means are linear in the values, which are given when asked.
    """

    def __init__(self, kernel: Matern, points: Matrix, pool: Matrix) -> None:
        self.kernel, self.pool = kernel, pool
        self.size = len(points)
        room = self.size + ROOM
        self._points = np.empty((room, points.shape[1]))
        self._points[: self.size] = points
        self._inverse = np.zeros((room, room))
        self._projected = np.empty((room, len(pool)))
        if self.size:
            self._inverse[: self.size, : self.size] = kernel.inverse_factor(points)
            self._projected[: self.size] = self._factor @ kernel.between(points, pool)

    @property
    def _factor(self) -> Matrix:
        return self._inverse[: self.size, : self.size]

    def append(self, point: Vector) -> None:
        """One more observation, at ``point``."""
        if self.size == len(self._points):
            self._grow()
        count, at = self.size, point[None]
        covariance = self.kernel.between(self._points[:count], at)[:, 0]
        row = self._factor @ covariance
        pivot = math.sqrt(max(1.0 + self.kernel.noise - float(row @ row), 1e-9))
        projected = self.kernel.between(at, self.pool)[0]
        self._projected[count] = (projected - row @ self._projected[:count]) / pivot
        self._inverse[count, :count] = -(row @ self._factor) / pivot
        self._inverse[count, count] = 1 / pivot
        self._points[count] = point
        self.size += 1

    def truncate(self, size: int) -> None:
        """Forget all but the first ``size`` observations."""
        self.size = size

    def select(self, candidates: NDArray[np.intp]) -> None:
        """Keep these candidates of the pool only."""
        self.pool = self.pool[candidates]
        self._projected = self._projected[:, candidates]

    def mean(self, values: Vector) -> Vector:
        """Means on the pool, given the values at the points."""
        result: Vector = (self._factor @ values) @ self._projected[: self.size]
        return result

    def variance(self) -> Vector:
        """Variances on the pool, without the noise of an observation."""
        projected = self._projected[: self.size]
        result: Vector = np.maximum(1.0 - np.einsum("ij,ij->j", projected, projected), LEAST_VARIANCE)
        return result

    def weights(self, values: Vector) -> Vector:
        """What the covariances with the points are multiplied by to give a mean, given the values at the points."""
        result: Vector = self._factor.T @ (self._factor @ values)
        return result

    def smoothed(self, values: Vector) -> Vector:
        """Means at the points themselves: the values with their noise taken off."""
        return values - self.kernel.noise * self.weights(values)

    def _grow(self) -> None:
        more = len(self._points) + max(ROOM, len(self._points) // 2)
        points, inverse = np.empty((more, self._points.shape[1])), np.zeros((more, more))
        projected = np.empty((more, len(self.pool)))
        points[: self.size] = self._points
        inverse[: self.size, : self.size] = self._inverse
        projected[: self.size] = self._projected
        self._points, self._inverse, self._projected = points, inverse, projected
