"""What compiling would say of configurations that nobody compiled: learnt from those that somebody did.

Registers, shared memory and the number of programs are products of tile sizes, so their logarithms are nearly linear in
the coordinates of a space. A least-squares fit with a little regularisation learns from a dozen variants which
parameter moves which fact and by how much, whatever the parameters are called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import numpy as np

from ...measure.measurement import Measurement
from .encoding import Grid, Levels, Matrix, Vector, stacked

Fact: TypeAlias = Literal["programs", "registers", "spill_bytes", "shared_bytes", "slots", "resident_warps"]
FACTS: tuple[Fact, ...] = get_args(Fact)

#: Variants that a fit needs beyond one a coordinate, and what is added to the squares of the coordinates.
MORE, RIDGE = 2, 1e-3


class FactModel:
    """Facts of measured configurations, and a fit of each over the whole space."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._rows: dict[bytes, Levels] = {}
        self._known: dict[Fact, dict[bytes, float]] = {name: {} for name in FACTS}
        self._fits: dict[Fact, Vector | None] = {}

    def learn(self, row: Levels, measurement: Measurement) -> None:
        """Take the facts of a configuration that was compiled."""
        code = measurement.code
        if code is None:
            return
        key = row.tobytes()
        self._rows[key] = row
        self._fits.clear()
        for name in FACTS:
            value = getattr(code, name)
            if value is not None:
                self._known[name][key] = math.log2(1 + value)

    def predicted(self, fact: Fact, rows: Levels) -> Vector | None:
        """log2(1 + fact) of each row; None where too few variants told it."""
        if fact not in self._fits:
            self._fits[fact] = self._fit(self._known[fact])
        weights = self._fits[fact]
        return None if weights is None else _with_one(self._grid.points(rows)) @ weights

    def _fit(self, known: Mapping[bytes, float]) -> Vector | None:
        if len(known) < self._grid.dimensions + MORE:
            return None
        rows = stacked((self._rows[key] for key in known), len(self._grid.sizes))
        points = _with_one(self._grid.points(rows))
        values = np.array(list(known.values()))
        penalty = RIDGE * len(known) * np.eye(points.shape[1])
        penalty[-1, -1] = 0.0  # the level is free
        fitted: Vector = np.linalg.solve(points.T @ points + penalty + 1e-12 * np.eye(len(penalty)), points.T @ values)
        return fitted


def _with_one(points: Matrix) -> Matrix:
    return np.concatenate([points, np.ones((len(points), 1))], axis=1)
