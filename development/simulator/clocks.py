"""What happened before what: vector clocks of threads and of asynchronous operations.

Time is one counter that moves on at every release. A stamp is the time of an access; a thread knows, for every thread
and every asynchronous agent, up to which time the accesses of that one are over as far as it can tell. Releases (an
arrival, a barrier) publish what a thread knows, acquires (a wait) take it over (C. Fidge, "Timestamps in
message-passing systems that preserve the partial ordering", 1988).

A second table holds what a proxy fence ordered before the asynchronous proxy (PTX ISA, "Proxies"): a write by ordinary
instructions reaches TMA and wgmma only through a ``fence.proxy.async`` somewhere on the way, and a read by them is done
before TMA writes only with such a fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .values import LANES, SimulationError

Threads = npt.NDArray[np.int32]
Times = npt.NDArray[np.int32]

#: The code of a mark that several lanes of a row left.
SEVERAL = LANES
FOREVER = np.iinfo(np.int32).max
_KNOWN, _FENCED = 0, 1


@dataclass
class Row:
    """A group of up to 32 agents that leave marks: a warp, or asynchronous operations of one kind."""

    name: str
    first: int
    width: int
    #: Whether its accesses go through the generic proxy.
    generic: bool
    #: Whether a program may not end before someone waited for it.
    awaited: bool
    last: int = 0


class Clocks:
    """The clocks of the threads that run together: a program, or the programs of a cluster."""

    def __init__(self, threads: int = 1024) -> None:
        self.time = 1
        self.begin(threads)

    def begin(self, threads: int) -> None:
        """New threads, which know all that happened until now."""
        self.threads = threads
        self.origin = self.base = self.time
        self.time += 1
        self.warps = -(-threads // LANES)
        self.rows = [Row("", LANES * w, LANES, generic=True, awaited=False) for w in range(self.warps)]
        self._tables: npt.NDArray[np.int32] | None = None

    @property
    def tables(self) -> npt.NDArray[np.int32]:
        """(2, threads, columns): what each thread knows, and what it knows to be fenced; made when first needed."""
        columns = self.rows[-1].first + self.rows[-1].width
        if self._tables is None:
            self._tables = np.zeros((2, self.threads, columns), np.int32)
        if self._tables.shape[2] < columns:
            self._tables = np.pad(self._tables, ((0, 0), (0, 0), (0, columns - self._tables.shape[2])))
        return self._tables

    def add(self, name: str, width: int, *, generic: bool, awaited: bool) -> int:
        """The row of new agents."""
        end = self.rows[-1].first + self.rows[-1].width
        self.rows.append(Row(name, end, width, generic, awaited))
        return len(self.rows) - 1

    def meet(self) -> None:
        """All threads have met at a barrier."""
        self.base = self.time
        self.time += 1
        if self._tables is not None:
            self._tables[:] = self._tables.max(axis=1, keepdims=True)

    def release(self, threads: Threads) -> Times:
        """What ``threads`` know, their own accesses until now included: an array (2, columns)."""
        clock: Times = self.tables[:, threads].max(axis=1)
        clock[_KNOWN, threads] = self.time
        self.time += 1
        return clock

    def finished(self, row: int, lanes: Threads | None = None, time: int | None = None) -> Times:
        """What the end of the asynchronous operations of ``row`` tells: their accesses until ``time`` are over.

        ``lanes``: of the row, None for all; ``time``: None for now.
        """
        clock = np.zeros(self.tables[:, 0].shape, np.int32)
        first, width = self.rows[row].first, self.rows[row].width
        clock[_KNOWN, slice(first, first + width) if lanes is None else first + lanes] = (
            self.time if time is None else time
        )
        self.time += 1
        return clock

    def end_own(self, row: int, lanes: Threads, threads: Threads, times: Times) -> None:
        """Let each of ``threads`` know that what its lane of the asynchronous ``row`` did until its time is over."""
        column = self.rows[row].first + lanes
        self.tables[_KNOWN, threads, column] = np.maximum(self.tables[_KNOWN, threads, column], times)
        self.time += 1

    def acquire(self, threads: Threads, clock: Times) -> None:
        """Let ``threads`` know what ``clock`` tells."""
        columns = clock.shape[1]
        tables = self.tables
        tables[:, threads, :columns] = np.maximum(tables[:, threads, :columns], clock[:, None])

    def join(self, threads: Threads) -> None:
        """``threads`` have met at a barrier."""
        self.acquire(threads, self.release(threads))

    def fence(self, threads: Threads) -> None:
        """A proxy fence: ordinary accesses that ``threads`` made or know of come before the async proxy's."""
        tables = self.tables
        known = tables[_KNOWN, threads]
        ordinary = known[:, : self.threads]
        np.maximum(ordinary, self.base, out=ordinary)
        tables[_FENCED, threads] = np.maximum(tables[_FENCED, threads], known)
        tables[_FENCED, threads, threads] = self.time
        self.time += 1

    def mark(self, row: int, code: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """What an access now leaves behind."""
        self.rows[row].last = self.time
        return (self.time << 6) | code

    def over(self, threads: Sequence[int], others: Threads, time: int) -> bool:
        """Whether one of ``threads`` knows all that ``others`` did until ``time``."""
        known = np.maximum(self.tables[_KNOWN, threads].max(axis=0)[others], self.base)
        return bool((known >= time).all())

    def check_finished(self) -> None:
        """Raises SimulationError if the threads end before what they started."""
        for row in self.rows:
            if row.awaited and self.tables[_KNOWN, :, row.first : row.first + row.width].max() < row.last:
                raise SimulationError(f"the program ends without a wait for {row.name}")


class Actor:
    """Who makes an access: threads themselves, or asynchronous operations that they started."""

    def __init__(self, clocks: Clocks, threads: Threads, row: int = -1, *, together: bool = False) -> None:
        """``row``: of the asynchronous agents; ``together``: one operation that all threads start as a group."""
        self.clocks = clocks
        self.threads = threads
        self.by_thread = row < 0
        self.row = int(threads[0]) // LANES if row < 0 else row
        row_of_marks = clocks.rows[self.row]
        self.code = threads & (LANES - 1) if row_of_marks.width == LANES else np.zeros(1, np.int32)
        self.together = together
        self.generic = row_of_marks.generic
        #: Marks up to this time cannot race with it.
        self.limit = clocks.base if self.generic else clocks.origin

    def seen(self, row: int, *, fenced: bool) -> Times:
        """(accesses, 33): up to which time the agents of ``row`` are over for each access, and all of them.

        ``fenced``: as far as proxy fences tell, where they are needed.
        """
        clocks, of = self.clocks, self.clocks.rows[row]
        fenced &= of.generic and not self.generic
        known = clocks.tables[_FENCED if fenced else _KNOWN, self.threads, of.first : of.first + of.width]
        if row < clocks.warps and not fenced:
            known = np.maximum(known, clocks.base)
            mine = self.threads // LANES == row
            known[mine, self.threads[mine] % LANES] = FOREVER
        if self.together:
            known = known.min(axis=0, keepdims=True)
        # A row of one agent leaves no mark of several; marks of other codes are of earlier programs.
        seen = np.empty((len(known), SEVERAL + 1), np.int32)
        np.maximum(known, clocks.origin, out=seen[:, : of.width])
        seen[:, of.width :] = seen[:, : of.width].min(axis=1, keepdims=True)
        return seen

    def named(self, place: int) -> str:
        """The one that makes the access number ``place``."""
        return f"thread {self.threads[place]}" if self.by_thread else self.clocks.rows[self.row].name
