"""The valid configurations of a space as rows of levels: listed where they are few, drawn where they are many."""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator

import numpy as np
from numpy.typing import NDArray

from ...space import Space
from .constrained_rows import ConstrainedRows
from .encoding import Grid, Levels, keys, stacked

#: Spaces of up to so many configurations are listed once, which takes a few microseconds for each.
LISTED = 30_000
#: Larger spaces count as exhausted after so many draws in a row that were seen before.
REPEATS = 10_000
#: Rows of a product that are tried at a time; for the new ones of a draw, and for its first ones; and how many of these
#: have to be found for the product to be drawn from.
BATCH, TRIED, TRIED_FIRST, LEAST_FOUND = 25_000, 50_000, 1_000_000, 50
#: Rows of them that are judged one by one, for some tens of microseconds each: more where NumPy strikes out few.
JUDGED = 20_000


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
    """A space without expressions that is too large to list: it draws and checks itself.

    Both take it tens of microseconds a configuration, so draws are kept: a pool is a third new.
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


class FilteredDomain(Domain):
    """A constrained space that is too large to list: rows are drawn from the product, and those kept of which the
    constraints are true. Where they are true of hardly any, the space is walked through."""

    def __init__(self, constrained: ConstrainedRows, space: Space, seed: int) -> None:
        super().__init__(constrained.grid)
        self._constrained, self._space = constrained, space
        self._random = random.Random(seed)
        self._walk: Iterator[Levels] | None = None
        self._drawn: Levels = stacked((), len(self.grid.sizes))

    def valid(self, rows: Levels) -> NDArray[np.bool_]:
        """As :meth:`Domain.valid`."""
        return self._constrained.hold(rows)

    def draw(self, count: int, rng: np.random.Generator) -> Levels:
        """As :meth:`Domain.draw`. A third is new, or as much as a bounded number of rows has; the rest was drawn
        before."""
        kept = self._drawn[: max(0, count - max(1, count // 3))]
        new = self._new(count - len(kept), TRIED if len(kept) else TRIED_FIRST, rng)
        self._drawn = np.concatenate([new, kept])
        return self._drawn

    def unseen(self, seen: Container[bytes], rng: np.random.Generator) -> Levels | None:
        """As :meth:`Domain.unseen`."""
        drawn = self._new(REPEATS, TRIED_FIRST, rng) if self._walk is None else ()
        rows = itertools.chain(drawn, itertools.islice(self._walking(), REPEATS))
        return next((row for row in rows if row.tobytes() not in seen), None)

    def _new(self, count: int, most: int, rng: np.random.Generator) -> Levels:
        """Up to ``count`` rows, of up to ``most`` of the product or of a walk."""
        width = len(self.grid.sizes)
        if self._walk is not None:
            return stacked(itertools.islice(self._walk, count), width)
        found: list[Levels] = []
        tried = judged = 0
        while len(found) < count and tried < most and judged < JUDGED:
            rows, more = self._constrained.random(BATCH, count - len(found), JUDGED - judged, rng)
            found += rows
            tried, judged = tried + BATCH, judged + more
        if most == TRIED_FIRST and len(found) < min(count, LEAST_FOUND):
            found += itertools.islice(self._walking(), count - len(found))
        return stacked(found, width)

    def _walking(self) -> Iterator[Levels]:
        if self._walk is None:
            rows = map(self.grid.levels, self._space.walked(self._random))
            self._walk = (row for row in rows if row is not None)
        return self._walk


def domain_of(space: Space, seed: int) -> Domain:
    """The domain of ``space``. Raises :class:`~...errors.SpaceError` when the space is empty."""
    grid = Grid(space.parameters)
    count = space.count()
    if count == space.cartesian_size:
        if count > LISTED:
            return ProductDomain(grid)
        return ListedDomain(grid, _product(grid))
    if count is None or count > LISTED:
        return _large(grid, space, seed)
    rows = [row for row in map(grid.levels, space.configurations()) if row is not None]
    return ListedDomain(grid, stacked(rows, len(grid.sizes)))


def _large(grid: Grid, space: Space, seed: int) -> Domain:
    """The domain of a constrained space of which it is not known that it is small."""
    if space.conditions is None:
        return SampledDomain(grid, space, seed)
    constrained = ConstrainedRows(grid, space)
    rows = constrained.all(LISTED)
    if rows is not None and len(rows):
        return ListedDomain(grid, rows)
    return FilteredDomain(constrained, space, seed)


def _product(grid: Grid) -> Levels:
    axes = np.indices(tuple(grid.sizes.tolist()), dtype=np.int16)
    return np.ascontiguousarray(axes.reshape(len(grid.sizes), -1).T)
