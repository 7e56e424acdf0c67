"""Races: two threads of a program that touch the same byte, one of them writing, with no barrier between.

Threads of one warp count as different ones, as they may run apart on real hardware. Equal values from several threads
are no race (copies of an element are stored by all their holders), nor are atomics among themselves.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .values import SimulationError

Indices = npt.NDArray[np.int64]
Threads = npt.NDArray[np.int32]
Marks = npt.NDArray[np.int32]

_NOBODY, _SEVERAL = -1, -2


class AccessLog:
    """Which thread read, wrote or atomically changed each of ``size`` bytes since the last barrier."""

    def __init__(self, what: str, size: int) -> None:
        self.what = what
        self._reader, self._writer, self._atomic = (np.full(size, _NOBODY, np.int32) for _ in range(3))
        self._touched: list[Indices] = []

    def barrier(self) -> None:
        """All threads of the program have met: nothing of before can race with what follows."""
        for indices in self._touched:
            for marks in (self._reader, self._writer, self._atomic):
                marks[indices] = _NOBODY
        self._touched.clear()

    def read(self, indices: Indices, threads: Threads) -> None:
        """Row i of ``indices`` is read by ``threads[i]``; raises SimulationError on a race."""
        self._check("reads", "wrote", self._writer, indices, threads)
        self._check("reads", "changed", self._atomic, indices, threads)
        self._mark(self._reader, indices, threads)

    def write(self, indices: Indices, threads: Threads, changes: npt.NDArray[np.bool_]) -> None:
        """As ``read``; ``changes`` says which bytes get another value than they have."""
        self._check("writes", "read", self._reader, indices, threads)
        self._check("writes", "changed", self._atomic, indices, threads)
        self._check("writes", "wrote", self._writer, indices, threads, changes)
        self._mark(self._writer, indices, threads)

    def change(self, indices: Indices, threads: Threads) -> None:
        """An atomic operation on each row of ``indices``."""
        self._check("changes", "read", self._reader, indices, threads)
        self._check("changes", "wrote", self._writer, indices, threads)
        self._mark(self._atomic, indices, threads)

    def _check(
        self,
        does: str,
        did: str,
        marks: Marks,
        indices: Indices,
        threads: Threads,
        counts: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        before = marks[indices]
        races = (before != _NOBODY) & (before != threads[:, None])
        if counts is not None:
            races &= counts
        if races.any():
            row, column = (int(where[0]) for where in np.nonzero(races))
            who = "several threads" if before[row, column] == _SEVERAL else f"thread {before[row, column]}"
            raise SimulationError(
                f"race in {self.what}: thread {threads[row]} {does} byte {int(indices[row, column]):#x}, "
                f"which {who} {did}, with no barrier between"
            )

    def _mark(self, marks: Marks, indices: Indices, threads: Threads) -> None:
        before, mine = marks[indices], np.broadcast_to(threads[:, None], indices.shape)
        marks[indices] = mine
        # Of the lanes of one instruction that touch the same byte only the last one's mark is there now.
        others = ((before != _NOBODY) & (before != mine)) | (marks[indices] != mine)
        marks[indices[others]] = _SEVERAL
        self._touched.append(indices)
