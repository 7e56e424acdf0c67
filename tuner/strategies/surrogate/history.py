"""What a search knows: what was told, and what was proposed and not told yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .encoding import Levels, Vector
from .targets import log_times


@dataclass(frozen=True)
class Evaluation:
    """A configuration and its time in ns, None if it failed."""

    row: Levels
    time: float | None

    @property
    def key(self) -> bytes:
        """What identifies the configuration."""
        return self.row.tobytes()


class History:
    """Evaluations and open proposals by key, in the order in which they came."""

    def __init__(self) -> None:
        self._told: dict[bytes, Evaluation] = {}
        self._open: dict[bytes, Levels] = {}

    def propose(self, row: Levels) -> None:
        """``row`` is being evaluated."""
        self._open[row.tobytes()] = row

    def tell(self, row: Levels, time: float | None) -> None:
        """``row`` took ``time``; None: it failed. The last word counts."""
        key = row.tobytes()
        self._open.pop(key, None)
        self._told[key] = Evaluation(row, time)

    def __contains__(self, key: object) -> bool:
        return key in self._told or key in self._open

    def __len__(self) -> int:
        return len(self._told) + len(self._open)

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
