"""Which configurations will work: limits that were found out, and a Gaussian process on labels for the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .acquisition import normal_cdf
from .encoding import Grid, Levels, Vector, keys
from .gaussian_process import MaternPrior
from .limits import Limits
from .process import Process

#: What a configuration far from all others is labelled, between -1 (fails) and 1 (works): within all limits that are
#: believed, and beyond one.
WITHIN, BEYOND = -0.5, -1.0
LENGTH = 1.5
#: Added to the variance of the label: how much doubt a candidate's own peculiarity leaves.
DOUBT = 0.05


class Validity:
    """Regression on labels, 1 for what worked and -1 for what failed; a candidate works if its label is above 0."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._process = Process(MaternPrior(length=LENGTH))
        self._limits = Limits(grid)
        self._expected: Vector = np.zeros(0)
        self._expected_of_pool: Vector = np.zeros(0)

    @property
    def fitted(self) -> bool:
        """Whether there is a kernel."""
        return self._process.fitted

    @property
    def limits(self) -> Limits:
        """The limits that are believed since the last fit."""
        return self._limits

    def fit(self, rows: Levels, worked: Sequence[bool], steps: int | None = None) -> None:
        """Learn how failures lie."""
        self._limits.learn(rows, worked)
        self._process.fit(self._grid.points(rows), _labels(worked) - self._mean(rows), steps)

    def attach(self, rows: Levels, pool: Levels) -> None:
        """Look at the candidates ``pool`` given that ``rows`` were evaluated."""
        self._process.attach(keys(rows), self._grid.points(rows), self._grid.points(pool))
        self._expected, self._expected_of_pool = self._mean(rows), self._mean(pool)

    def follow(self, rows: Levels) -> None:
        """As :meth:`.process.Process.follow`."""
        self._process.follow(keys(rows), self._grid.points(rows))
        self._expected = self._mean(rows)

    def select(self, candidates: NDArray[np.intp]) -> None:
        """Keep these candidates only."""
        self._process.posterior.select(candidates)
        self._expected_of_pool = self._expected_of_pool[candidates]

    def probability(self, worked: Sequence[bool], doubt: float = DOUBT) -> Vector:
        """How probable it is that each candidate works."""
        posterior = self._process.posterior
        mean = posterior.mean(_labels(worked) - self._expected) + self._expected_of_pool
        return normal_cdf(mean / np.sqrt(posterior.variance() + doubt))

    def _mean(self, rows: Levels) -> Vector:
        return np.where(self._limits.broken(rows), BEYOND, WITHIN)


def _labels(worked: Sequence[bool]) -> Vector:
    return np.where(np.array(worked, bool), 1.0, -1.0)
