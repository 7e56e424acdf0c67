"""Races: two threads of a program that touch the same byte, one of them writing, with nothing to order them.

Threads of one warp count as different ones, as they may run apart on real hardware; asynchronous operations count as
threads of their own. Equal values from several threads are no race (copies of an element are stored by all their
holders), nor are atomics among themselves.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .clocks import FOREVER, SEVERAL, Actor, Clocks, Times
from .values import LANES, SimulationError

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Marks:
    """When each row of agents last touched each of ``size`` bytes in one way, and which of its lanes did."""

    def __init__(self, size: int, clocks: Clocks) -> None:
        self.clocks = clocks
        # The time of the last access by a thread; an asynchronous one never counts as long past.
        self._latest = np.zeros(size, np.int32)
        self.rows: dict[int, npt.NDArray[np.int32]] = {}
        #: When each row last touched any of the bytes.
        self._last: dict[int, int] = {}

    def add(self, indices: Indices, actor: Actor) -> None:
        """Row i of ``indices`` is touched by agent i of ``actor``."""
        marks = self.rows.get(actor.row)
        if marks is None:
            marks = self.rows[actor.row] = np.zeros(len(self._latest), np.int32)
        self._last[actor.row] = self.clocks.time
        now = self.clocks.mark(actor.row, actor.code)[:, None]
        before = marks[indices]
        marks[indices] = now
        # Of the lanes of one instruction that touch the same byte only the last one's mark is there now.
        others = marks[indices] != now
        if (before > actor.limit << 6 | 63).any():
            # What comes after this access comes after all that this access comes after.
            others |= (before >> 6 > _known(actor.seen(actor.row, fenced=False), before & 63)) & (
                before & 63 != now & 63
            )
        if others.any():
            marks[indices[others]] = self.clocks.time << 6 | SEVERAL
        self._latest[indices] = np.maximum(self._latest[indices], self.clocks.time) if actor.by_thread else FOREVER

    def recent(self, indices: Indices, actor: Actor) -> bool:
        """Whether a race is possible at all."""
        return bool(self.rows) and bool((self._latest[indices] > actor.limit).any())

    def unordered(self, row: int, indices: Indices, actor: Actor, *, fenced: bool) -> Mask | None:
        """Which bytes agents of ``row`` touched with nothing to order that before ``actor``; None for none."""
        # What is asynchronous is never long past.
        past = actor.limit if row < self.clocks.warps else self.clocks.origin
        if self._last[row] <= past:
            return None
        marks = self.rows[row][indices]
        if marks.max(initial=0) >> 6 <= past:
            return None
        seen = actor.seen(row, fenced=fenced)
        if seen.min() >= self._last[row]:
            return None
        late: Mask = marks >> 6 > _known(seen, marks & 63)
        return late

    def who(self, row: int, index: int) -> str:
        """The agent that left the mark."""
        if row >= self.clocks.warps:
            return self.clocks.rows[row].name
        code = int(self.rows[row][index]) & 63
        return "several threads" if code == SEVERAL else f"thread {row * LANES + code}"


def _known(seen: Times, codes: Times) -> Times:
    """Up to which time the agents in row i of ``codes`` are over for access i, as ``seen`` tells."""
    known: Times = seen[0][codes] if len(seen) == 1 else seen[np.arange(len(seen))[:, None], codes]
    return known


class AccessLog:
    """Who read, wrote or atomically changed each of ``size`` bytes, and when."""

    def __init__(self, what: str, size: int, clocks: Clocks) -> None:
        self.what = what
        self._reads, self._writes, self._changes = (Marks(size, clocks) for _ in range(3))

    def read(self, indices: Indices, actor: Actor) -> None:
        """Row i of ``indices`` is read by agent i of ``actor``; raises SimulationError on a race."""
        self._check("reads", "wrote", self._writes, indices, actor)
        self._check("reads", "changed", self._changes, indices, actor)
        self._reads.add(indices, actor)

    def write(self, indices: Indices, actor: Actor, changes: Mask | None = None) -> None:
        """As ``read``; ``changes`` says which bytes get another value than they have."""
        self._check("writes", "read", self._reads, indices, actor)
        self._check("writes", "changed", self._changes, indices, actor)
        self._check("writes", "wrote", self._writes, indices, actor, changes)
        self._writes.add(indices, actor)

    def change(self, indices: Indices, actor: Actor) -> None:
        """An atomic operation on each row of ``indices``."""
        self._check("changes", "read", self._reads, indices, actor)
        self._check("changes", "wrote", self._writes, indices, actor)
        self._changes.add(indices, actor)

    def _check(
        self, does: str, did: str, marks: Marks, indices: Indices, actor: Actor, counts: Mask | None = None
    ) -> None:
        if not marks.recent(indices, actor):
            return
        for row in marks.rows.keys() & range(len(marks.clocks.rows)):
            races = marks.unordered(row, indices, actor, fenced=True)
            if races is not None and counts is not None:
                races &= counts
            if races is not None and races.any():
                place = tuple(int(where[0]) for where in np.nonzero(races))
                before = marks.unordered(row, indices, actor, fenced=False)
                ordered = before is None or not before[place]
                raise SimulationError(
                    f"race in {self.what}: {actor.named(place[0])} {does} byte {int(indices[place]):#x}, which "
                    f"{marks.who(row, int(indices[place]))} {did}, "
                    f"with no {'fence.proxy.async' if ordered else 'barrier'} between"
                )
