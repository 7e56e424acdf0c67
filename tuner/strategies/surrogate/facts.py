"""What compiling would say of configurations that nobody compiled: learnt from those that somebody did.

Registers, shared memory and the number of programs are products of tile sizes, so their logarithms are nearly linear in
the coordinates of a space. A least-squares fit with a little regularisation learns from a dozen variants which
parameter moves which fact and by how much, whatever the parameters are called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from ...measure.measurement import Measurement
from .encoding import Grid, Levels, Matrix, Vector, keys, stacked

Fact: TypeAlias = Literal["programs", "registers", "spill_bytes", "shared_bytes", "slots", "resident_warps"]
FACTS: tuple[Fact, ...] = get_args(Fact)

#: Variants that a fit needs beyond one a coordinate, and what is added to the squares of the coordinates.
MORE, RIDGE = 2, 1e-3


class FactModel:
    """Facts of measured configurations, and a fit of each over the whole space."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._rows: dict[bytes, Levels] = {}
        self._filling: set[bytes] = set()
        self._known: dict[Fact, dict[bytes, float]] = {name: {} for name in FACTS}
        self._fits: dict[Fact, Vector] = {}

    def learn(self, row: Levels, measurement: Measurement) -> None:
        """Take the facts of a configuration that was compiled."""
        code = measurement.code
        if code is None:
            return
        key = row.tobytes()
        self._rows[key] = row
        if measurement.waves is not None and measurement.waves >= 1:
            self._filling.add(key)
        self._fits.clear()
        for name in FACTS:
            value = getattr(code, name)
            if value is not None:
                self._known[name][key] = math.log2(1 + value)

    def predicted(self, fact: Fact, rows: Levels) -> Vector | None:
        """log2(1 + fact) of each row; None where too few variants told it."""
        if len(self._known[fact]) < self._grid.dimensions + MORE:
            return None
        return _with_one(self._grid.points(rows)) @ self._weights(fact)

    @property
    def told(self) -> tuple[Fact, ...]:
        """The facts of which anything is known."""
        return tuple(name for name in FACTS if self._known[name])

    def fills(self, key: bytes) -> bool:
        """Whether a configuration is known to have as many programs as the device holds at once."""
        return key in self._filling

    def known_or_predicted(self, facts: Sequence[Fact], rows: Levels) -> Matrix:
        """log2(1 + fact) of each row, a column a fact: what was told of it, else what is predicted from however little
        was told of others."""
        columns = _with_one(self._grid.points(rows)) @ np.stack([self._weights(fact) for fact in facts], axis=1)
        compiled = [(at, key) for at, key in enumerate(keys(rows)) if key in self._rows]
        for column, fact in enumerate(facts):
            for at, key in compiled:
                columns[at, column] = self._known[fact].get(key, columns[at, column])
        return columns

    def _weights(self, fact: Fact) -> Vector:
        if fact not in self._fits:
            self._fits[fact] = self._fit(self._known[fact])
        return self._fits[fact]

    def _fit(self, known: Mapping[bytes, float]) -> Vector:
        rows = stacked((self._rows[key] for key in known), len(self._grid.sizes))
        points = _with_one(self._grid.points(rows))
        values = np.array(list(known.values()))
        penalty = RIDGE * len(known) * np.eye(points.shape[1])
        penalty[-1, -1] = 0.0  # the level is free
        fitted: Vector = np.linalg.solve(points.T @ points + penalty + 1e-12 * np.eye(len(penalty)), points.T @ values)
        return fitted


def _with_one(points: Matrix) -> Matrix:
    return np.concatenate([points, np.ones((len(points), 1))], axis=1)
