"""The valid configurations of a space as rows of levels: listed where they are few, drawn where they are many."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from ...space import Space
from .encoding import Grid, Levels, keys, stacked

#: Spaces of up to so many configurations are listed once, which takes a few microseconds for each.
LISTED = 30_000
#: Larger spaces count as exhausted after so many draws in a row that were seen before.
REPEATS = 10_000


class Domain(ABC):
    """What may be proposed."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    @abstractmethod
    def valid(self, rows: Levels) -> NDArray[np.bool_]:
        """Which rows satisfy the constraints."""

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> Levels:
        """Up to ``count`` valid rows at random; a small domain gives all that it has."""

    @abstractmethod
    def unseen(self, seen: Container[bytes], rng: np.random.Generator) -> Levels | None:
        """A valid row at random that is not in ``seen``; None when none is left."""


class ListedDomain(Domain):
    """Rows that are all known."""

    def __init__(self, grid: Grid, rows: Levels) -> None:
        super().__init__(grid)
        self._rows = rows
        self._keys = frozenset(keys(rows))
        self._order: list[int] | None = None

    def valid(self, rows: Levels) -> NDArray[np.bool_]:
        """As :meth:`Domain.valid`."""
        return np.array([key in self._keys for key in keys(rows)], bool)

    def draw(self, count: int, rng: np.random.Generator) -> Levels:
        """As :meth:`Domain.draw`."""
        if count >= len(self._rows):
            return self._rows
        return self._rows[rng.choice(len(self._rows), count, replace=False)]

    def unseen(self, seen: Container[bytes], rng: np.random.Generator) -> Levels | None:
        """As :meth:`Domain.unseen`."""
        if self._order is None:
            self._order = rng.permutation(len(self._rows)).tolist()
        while self._order:
            row: Levels = self._rows[self._order.pop()]
            if row.tobytes() not in seen:
                return row
        return None


class ProductDomain(Domain):
    """A product without constraints that is too large to list."""

    def valid(self, rows: Levels) -> NDArray[np.bool_]:
        """As :meth:`Domain.valid`."""
        return np.ones(len(rows), bool)

    def draw(self, count: int, rng: np.random.Generator) -> Levels:
        """As :meth:`Domain.draw`."""
        return self.grid.random(count, rng)

    def unseen(self, seen: Container[bytes], rng: np.random.Generator) -> Levels | None:
        """As :meth:`Domain.unseen`."""
        rows = self.grid.random(REPEATS, rng)
        return next((row for row in rows if row.tobytes() not in seen), None)


class SampledDomain(Domain):
    """A constrained space that is too large to list: the space itself draws and checks.

    Both take it tens of microseconds a configuration and more, so draws are kept: a pool is a third new.
    """

    def __init__(self, grid: Grid, space: Space, seed: int) -> None:
        super().__init__(grid)
        self._space = space
        self._samples = space.samples(random.Random(seed))
        self._drawn: list[Levels] = []
        self._known: dict[bytes, bool] = {}

    def valid(self, rows: Levels) -> NDArray[np.bool_]:
        """As :meth:`Domain.valid`."""
        return np.array([self._is_valid(row) for row in rows], bool)

    def draw(self, count: int, rng: np.random.Generator) -> Levels:
        """As :meth:`Domain.draw`."""
        kept = self._drawn[: max(0, count - max(1, count // 3))]
        self._drawn = [self._sample() for _ in range(count - len(kept))] + kept
        return stacked(self._drawn, len(self.grid.sizes))

    def unseen(self, seen: Container[bytes], rng: np.random.Generator) -> Levels | None:
        """As :meth:`Domain.unseen`."""
        for _ in range(REPEATS):
            row = self._sample()
            if row.tobytes() not in seen:
                return row
        return None

    def _sample(self) -> Levels:
        row = self.grid.levels(next(self._samples))
        assert row is not None  # noqa: S101 -- what the space draws has its own parameters
        self._known[row.tobytes()] = True
        return row

    def _is_valid(self, row: Levels) -> bool:
        key = row.tobytes()
        if key not in self._known:
            self._known[key] = self._space.contains(self.grid.configuration(row))
        return self._known[key]


def domain_of(space: Space, seed: int) -> Domain:
    """The domain of ``space``. Raises :class:`~...errors.SpaceError` when the space is empty."""
    grid = Grid(space.parameters)
    count = space.count()
    if count == space.cartesian_size:
        if count > LISTED:
            return ProductDomain(grid)
        return ListedDomain(grid, _product(grid))
    if count is None or count > LISTED:
        return SampledDomain(grid, space, seed)
    rows = [row for row in map(grid.levels, space.configurations()) if row is not None]
    return ListedDomain(grid, stacked(rows, len(grid.sizes)))


def _product(grid: Grid) -> Levels:
    axes = np.indices(tuple(grid.sizes.tolist()), dtype=np.int16)
    return np.ascontiguousarray(axes.reshape(len(grid.sizes), -1).T)
