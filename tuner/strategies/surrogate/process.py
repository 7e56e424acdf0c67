"""A Gaussian process that follows a search: the same observations and a few more, seen from the same candidates."""

from __future__ import annotations

from collections.abc import Sequence

from .encoding import Matrix, Vector
from .gaussian_process import Matern, MaternPrior, fit
from .posterior import PoolPosterior

#: Steps of the first fit of a kernel, and of a later one, which starts from the last.
FIRST_STEPS, LATER_STEPS = 40, 12


class Process:
    """Matern and posterior, brought up to date with as little work as the change needs."""

    def __init__(self, prior: MaternPrior) -> None:
        self._prior = prior
        self._kernel: Matern | None = None
        self._posterior: PoolPosterior | None = None
        self._keys: list[bytes] = []

    @property
    def fitted(self) -> bool:
        """Whether there is a kernel."""
        return self._kernel is not None

    def kernel(self, dimensions: int) -> Matern:
        """The kernel of the last fit; before the first what is expected of it."""
        return self._kernel or Matern(self._prior.medians(dimensions))

    @property
    def posterior(self) -> PoolPosterior:
        """What is known of the candidates of the last :meth:`attach`."""
        assert self._posterior is not None  # noqa: S101 -- attach comes first
        return self._posterior

    def fit(self, points: Matrix, values: Vector, steps: int | None = None) -> None:
        """Fit the kernel. ``steps``: how many of the optimiser, if not the usual."""
        if self._kernel is None:
            self._kernel = fit(points, values, None, self._prior, steps or FIRST_STEPS)
        else:
            self._kernel = fit(points, values, self._kernel.theta, self._prior, steps or LATER_STEPS)

    def attach(self, keys: Sequence[bytes], points: Matrix, pool: Matrix) -> None:
        """Look at the candidates ``pool``, given observations at ``points``, which ``keys`` identify."""
        assert self._kernel is not None  # noqa: S101 -- fit comes first
        self._posterior = PoolPosterior(self._kernel, points, pool)
        self._keys = list(keys)

    def follow(self, keys: Sequence[bytes], points: Matrix) -> None:
        """Observations are now at ``points``. Those that both have at the front are kept, the others added."""
        same = next((i for i, (a, b) in enumerate(zip(self._keys, keys, strict=False)) if a != b), None)
        same = min(len(self._keys), len(keys)) if same is None else same
        self.posterior.truncate(same)
        for point in points[same:]:
            self.posterior.append(point)
        self._keys = list(keys)
