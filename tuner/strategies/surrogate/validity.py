"""Which configurations will work: a Gaussian process on labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .acquisition import normal_cdf
from .encoding import Matrix, Vector
from .gaussian_process import MaternPrior
from .process import Process

#: What a configuration far from all others is labelled, between -1 (fails) and 1 (works).
MEAN = -0.5
LENGTH = 1.5
#: Added to the variance of the label: how much doubt a candidate's own peculiarity leaves.
DOUBT = 0.05


class Validity:
    """Regression on labels, 1 for what worked and -1 for what failed; a candidate works if its label is above 0."""

    def __init__(self) -> None:
        self._process = Process(MaternPrior(length=LENGTH))

    @property
    def fitted(self) -> bool:
        """Whether there is a kernel."""
        return self._process.fitted

    def fit(self, points: Matrix, worked: Sequence[bool], steps: int | None = None) -> None:
        """Learn how failures lie."""
        self._process.fit(points, _labels(worked), steps)

    def attach(self, keys: Sequence[bytes], points: Matrix, pool: Matrix) -> None:
        """Look at the candidates ``pool`` given what ``points`` gave."""
        self._process.attach(keys, points, pool)

    def follow(self, keys: Sequence[bytes], points: Matrix) -> None:
        """As :meth:`.process.Process.follow`."""
        self._process.follow(keys, points)

    def select(self, candidates: NDArray[np.intp]) -> None:
        """Keep these candidates only."""
        self._process.posterior.select(candidates)

    def probability(self, worked: Sequence[bool], doubt: float = DOUBT) -> Vector:
        """How probable it is that each candidate works."""
        posterior = self._process.posterior
        mean = posterior.mean(_labels(worked)) + MEAN
        return normal_cdf(mean / np.sqrt(posterior.variance() + doubt))


def _labels(worked: Sequence[bool]) -> Vector:
    return np.where(np.array(worked, bool), 1.0, -1.0) - MEAN
