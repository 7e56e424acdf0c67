"""What a search knows: what was told, and what was proposed and not told yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .encoding import Levels, Vector
from .targets import log_times


@dataclass(frozen=True)
class Evaluation:
    """A configuration and its time in ns, None if it failed. ``key`` identifies the configuration."""

    row: Levels
    time: float | None
    key: bytes

    @staticmethod
    def of(row: Levels, time: float | None) -> Evaluation:
        """``row`` took ``time``."""
        return Evaluation(row, time, row.tobytes())


class History:
    """Evaluations and open proposals by key, in the order in which they came."""

    def __init__(self) -> None:
        self._told: dict[bytes, Evaluation] = {}
        self._open: dict[bytes, Levels] = {}
        #: How often something was told.
        self.version = 0

    def propose(self, row: Levels) -> None:
        """``row`` is being evaluated."""
        self._open[row.tobytes()] = row

    def tell(self, row: Levels, time: float | None) -> None:
        """``row`` took ``time``; None: it failed. The last word counts."""
        evaluation = Evaluation.of(row, time)
        self._open.pop(evaluation.key, None)
        self._told[evaluation.key] = evaluation
        self.version += 1

    def __contains__(self, key: object) -> bool:
        return key in self._told or key in self._open

    def __len__(self) -> int:
        return len(self._told) + len(self._open)

    @property
    def keys(self) -> list[bytes]:
        """Of all that was told or is open."""
        return [*self._told, *self._open]

    @property
    def told(self) -> list[Evaluation]:
        """All evaluations."""
        return list(self._told.values())

    @property
    def worked(self) -> list[Evaluation]:
        """Those with a time."""
        return [evaluation for evaluation in self._told.values() if evaluation.time is not None]

    @property
    def best(self) -> Evaluation:
        """The fastest that worked; there must be one."""
        return min(self.worked, key=lambda evaluation: evaluation.time or 0.0)

    @property
    def open(self) -> list[Levels]:
        """Proposals that nothing was told of."""
        return list(self._open.values())

    @property
    def failures(self) -> int:
        """How many evaluations have no time."""
        return sum(evaluation.time is None for evaluation in self._told.values())

    @property
    def rows(self) -> list[Levels]:
        """All that was told or is open."""
        return [evaluation.row for evaluation in self._told.values()] + self.open


def logs(evaluations: list[Evaluation]) -> Vector:
    """Logarithms of the times of evaluations that worked."""
    return log_times(np.array([e.time for e in evaluations], float))
