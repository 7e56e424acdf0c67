"""Rows of a product that satisfy constraints: all of them, or random ones.

NumPy strikes out what breaks a constraint; what it leaves is judged as the space does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...space import Space
from .columns import RowCondition
from .encoding import Grid, Levels, keys, stacked

#: Rows that are made to list a space, some 0.5 s, and how many of them at once.
LISTING, AT_ONCE = 6_000_000, 100_000


class ConstrainedRows:
    """``space``: one with conditions; ``grid``: its parameters."""

    def __init__(self, grid: Grid, space: Space) -> None:
        self.grid = grid
        self._space = space
        conditions = [RowCondition(conjunct, grid, space.constants) for conjunct in space.conditions or ()]
        # By the last parameter that each names.
        self._at = [[one for one in conditions if one.last == place] for place in range(len(grid.sizes))]
        self._known: dict[bytes, bool] = {}

    def hold(self, rows: Levels) -> NDArray[np.bool_]:
        """Of which rows the constraints are true."""
        found = self._may_hold(rows)
        left = np.flatnonzero(found)
        found[left] = [self._is_valid(key, row) for key, row in zip(keys(rows[left]), rows[left], strict=True)]
        return found

    def random(self, tried: int, count: int, most: int, rng: np.random.Generator) -> tuple[list[Levels], int]:
        """Up to ``count`` of those of ``tried`` random rows of the product of which the constraints are true; and how
        many were judged for that, ``most`` at most."""
        rows = self.grid.random(tried, rng)
        left = rows[self._may_hold(rows)][:most]
        found: list[Levels] = []
        for judged, (key, row) in enumerate(zip(keys(left), left, strict=True)):
            if len(found) == count:
                return found, judged
            if self._is_valid(key, row):
                found.append(row)
        return found, len(left)

    def _may_hold(self, rows: Levels) -> NDArray[np.bool_]:
        found = np.ones(len(rows), bool)
        for conditions in self._at:
            for condition in conditions:
                left = np.flatnonzero(found)
                found[left] = condition.may_hold(rows[left])
        return found

    def all(self, most: int) -> Levels | None:
        """All rows; None where NumPy leaves more than ``most``, or they cannot be found among :data:`LISTING`."""
        width, made = len(self.grid.sizes), 0
        found: list[Levels] = []
        waiting = [(0, np.zeros((1, width), np.int16))]
        while waiting:
            place, rows = waiting.pop()
            if place == width:
                found.append(rows)
                if sum(map(len, found)) > most:
                    return None
                continue
            choices = int(self.grid.sizes[place])
            now = max(1, AT_ONCE // choices)
            if len(rows) > now:
                waiting.append((place, rows[now:]))
            made += min(now, len(rows)) * choices
            if made > LISTING:
                return None
            longer = np.repeat(rows[:now], choices, axis=0)
            longer[:, place] = np.tile(np.arange(choices, dtype=np.int16), len(longer) // choices)
            for condition in self._at[place]:
                longer = longer[condition.may_hold(longer)]
            if len(longer):
                waiting.append((place + 1, longer))
        rows = np.concatenate(found) if found else stacked((), width)
        return rows[self.hold(rows)]

    def _is_valid(self, key: bytes, row: Levels) -> bool:
        if key not in self._known:
            self._known[key] = self._space.allows(self.grid.configuration(row))
        return self._known[key]
