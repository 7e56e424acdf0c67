"""Configurations as points: the level of every parameter, and where each level lies between 0 and 1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...codec import Scalar
from ...space import Configuration, Parameter

Levels: TypeAlias = NDArray[np.int16]
Matrix: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = NDArray[np.float64]


#: Neighbours of a row, about, and of one parameter at least.
NEIGHBOURS, LEAST_NEIGHBOURS = 640, 8


def coordinates(choices: Sequence[Scalar]) -> Vector:
    """Where the choices of a parameter lie in [0, 1], in the order of the choices.

    Numbers (truth values too) lie at the mean of their rank and of their logarithm, both scaled to [0, 1]: block sizes
    double from level to level, loop counts do not, and the mean serves both. Two levels, negative numbers and texts
    have ranks only, texts in the order in which they are listed. A single choice lies at 0.
    """
    if any(isinstance(choice, str) for choice in choices):
        return _scaled(np.arange(len(choices), dtype=float))
    values = np.array([float(choice) for choice in choices])
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values))
    ranks[order] = np.arange(len(values))
    if len(values) <= 2 or values.min() < 0:
        return _scaled(ranks)
    logarithms = np.log2(values + (values.min() == 0))
    return (_scaled(ranks) + _scaled(logarithms)) / 2


def twos(choices: Sequence[Scalar]) -> Vector | None:
    """How often two divides each choice, scaled to [0, 1]; None where that says nothing beside :func:`coordinates`.

    CTAs of 32, 64 and 128 threads fill warps, align rows and are divided by vectors, 48 and 80 less well, so that
    they may be more alike than their neighbours. It says nothing of choices that are not all positive integers, and
    nothing new where it never falls as they grow, as with powers of two.
    """
    if any(isinstance(choice, str | bool) or choice <= 0 or not float(choice).is_integer() for choice in choices):
        return None
    values = sorted((int(choice), at) for at, choice in enumerate(choices))
    divided = np.empty(len(values))
    divided[[at for _, at in values]] = ordered = [(value & -value).bit_length() - 1 for value, _ in values]
    return None if ordered == sorted(ordered) else _scaled(divided)


def _others(size: int, level: int, most: int) -> list[int]:
    """Levels besides one: all, or ``most`` of them, half of which are the nearest."""
    if size - 1 <= most:
        return [other for other in range(size) if other != level]
    near, far = most // 2, most - most // 2
    low = min(max(0, level - near // 2), size - 1 - near)
    nearest = [other for other in range(low, low + near + 1) if other != level]
    left = [*range(low), *range(low + near + 1, size)]
    return nearest + [left[at * len(left) // far] for at in range(far)]


def _scaled(values: Vector) -> Vector:
    width = values.max() - values.min()
    return np.zeros(len(values)) if width == 0 else (values - values.min()) / width


class Grid:
    """The product of the choices of ``parameters``.

    A configuration is a row of levels: the index of each parameter's choice. Rows are int16, so their bytes identify
    them however large the product is.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.sizes = np.array([len(p.choices) for p in parameters], np.int16)
        #: Parameters that have more than one choice: only they are coordinates of a point.
        self.varied = np.flatnonzero(self.sizes > 1)
        # By type as well: 1, 1.0 and True are different choices.
        self._level_of = [{(type(c), c): i for i, c in enumerate(p.choices)} for p in parameters]
        self._coordinates = [coordinates(p.choices) for p in parameters if len(p.choices) > 1]
        divided = ((i, twos(p.choices)) for i, p in enumerate(parameters))
        self._twos = [(i, place) for i, place in divided if place is not None]

    @property
    def dimensions(self) -> int:
        """Coordinates of a point."""
        return len(self.varied)

    def levels(self, config: Configuration) -> Levels | None:
        """The row of ``config``; None if it has other parameters or other values."""
        if len(config) != len(self.parameters):
            return None
        row = []
        for parameter, known in zip(self.parameters, self._level_of, strict=True):
            value = config.get(parameter.name)
            level = None if value is None else known.get((type(value), value))
            if level is None:
                return None
            row.append(level)
        return np.array(row, np.int16)

    def configuration(self, row: Levels) -> dict[str, Scalar]:
        """The configuration of a row."""
        return {p.name: p.choices[level] for p, level in zip(self.parameters, row.tolist(), strict=True)}

    def points(self, rows: Levels) -> Matrix:
        """Coordinates of rows, shape (rows, dimensions)."""
        columns = [place[rows[:, i]] for i, place in zip(self.varied, self._coordinates, strict=True)]
        return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0))

    def features(self, rows: Levels) -> Matrix:
        """What the times of rows may depend on, shape (rows, features): the coordinates, and what :func:`twos` adds."""
        columns = [place[rows[:, i], None] for i, place in self._twos]
        return np.concatenate([self.points(rows), *columns], axis=1)

    def random(self, count: int, rng: np.random.Generator) -> Levels:
        """``count`` rows of the product, independent and uniform."""
        return (rng.random((count, len(self.sizes))) * self.sizes).astype(np.int16)

    def centre(self) -> Levels:
        """The row whose numbers have the middle rank."""
        row = np.zeros(len(self.sizes), np.int16)
        for i, place in zip(self.varied, self._coordinates, strict=True):
            row[i] = np.argsort(place, kind="stable")[(len(place) - 1) // 2]
        return row

    def neighbours(self, row: Levels) -> Levels:
        """Rows that differ from ``row`` in one parameter: every one, or of many choices the nearest and some others, so
        that there are some :data:`NEIGHBOURS` rows."""
        most = max(LEAST_NEIGHBOURS, NEIGHBOURS // max(1, len(self.varied)))
        others = [(i, _others(int(self.sizes[i]), int(row[i]), most)) for i in self.varied]  # one block a parameter
        rows = np.repeat(row[None], sum(len(levels) for _, levels in others), axis=0)
        start = 0
        for i, levels in others:
            rows[start : start + len(levels), i] = levels
            start += len(levels)
        return rows

    def mutated(self, row: Levels, count: int, changes: int, rng: np.random.Generator) -> Levels:
        """``count`` copies of ``row`` with up to ``changes`` parameters drawn anew."""
        rows = np.repeat(row[None], count, axis=0)
        if self.dimensions:
            for _ in range(changes):
                which = rng.choice(self.varied, count)
                rows[np.arange(count), which] = rng.integers(0, self.sizes[which])
        return rows

    def difference(self, row: Levels, other: Levels) -> list[tuple[str, Scalar, Scalar]]:
        """The parameters in which ``other`` differs from ``row``: name, value in ``row``, value in ``other``."""
        return [
            (p.name, p.choices[a], p.choices[b])
            for p, a, b in zip(self.parameters, row.tolist(), other.tolist(), strict=True)
            if a != b
        ]


def keys(rows: Levels) -> list[bytes]:
    """What identifies each row."""
    raw, width = rows.tobytes(), rows.shape[1] * rows.itemsize
    return [raw[at : at + width] for at in range(0, len(raw), width)]


def stacked(rows: Iterable[Levels], width: int) -> Levels:
    """Single rows below each other; ``width`` columns also where there is none."""
    listed = list(rows)
    return np.stack(listed) if listed else np.empty((0, width), np.int16)
