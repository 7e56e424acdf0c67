"""The child processes of a job, which serve one shape after the other: starting one takes longer than a small kernel's
whole search may.

What becomes of those that measure::

              begin_job              take_screening               give_back_screening
    started ------------> the spare ----------------> screening -----------------------> the spare
                               |                         ^
         prepare_next_problem  |                         |  take_screening, of the problem that was prepared
                               +-----> the next one's ---+

               take_final               give_back_final                begin_job, of the next job
    started --------------> in a final -----------------> one of finals --------------------------> the spare
                                ^                               |
                                |           take_final          |
                                +-------------------------------+

Where there is none to take, one is started. What owes an answer, is one too many, or was prepared for a problem that
does not come, is ending: it is killed, and reaped when another one ends, or all do. A job that ends leaves those of
finals.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from ..codec import JsonObject
from .child import WORKER, ChildCrashed, ChildProcess
from .compile_pool import CompilePool
from .measuring import MeasuringProcess
from .messages import Open, Prepare
from .nursery import Nursery

#: Processes that are kept for finals: one search has two.
MOST_FINALS = 2
#: That measure, or prepare to, at the same time: those, and one that screens or has begun with the next problem.
MEASURING_PROCESSES = MOST_FINALS + 1


class Processes:
    """A pool that compiles, and processes that measure: one that screens, or prepares to for the problem after the one
    at hand, those of finals, and those that are ending. Close it at the end.

    Making a context on a GPU takes a third of a second, longer where others on the host do so too, whatever their GPU.
    So processes are kept for the next problem, and those of finals for the next job (:mod:`.kept`). What screens runs
    whatever was proposed; in those of finals what was found right, or is checked there before it is timed, and for
    each problem they are others than the one that screened.

    ``nursery``: what they are forked from, which other jobs use, too. Another thread than the one that measures may
    :meth:`prepare_next_problem`.
    """

    def __init__(
        self, *, workers: int | None = None, command: Sequence[str] = WORKER, nursery: Nursery | None = None
    ) -> None:
        self._workers, self._command, self._nursery = workers, command, nursery
        #: How many jobs were begun with them.
        self.jobs = 0
        self._pool: CompilePool | None = None
        self._lock = threading.Lock()  # of the four below
        self._spare: ChildProcess | None = None
        self._next: tuple[Prepare, MeasuringProcess] | None = None
        self._finals: list[ChildProcess] = []
        self._ending = _Ending()

    def begin_job(self, device: str) -> None:
        """Begin to start a process that will measure on a GPU, before it is known what, unless the job before left
        one; then one for finals takes its place."""
        self.jobs += 1
        if self._nursery is not None:
            self._nursery.begin()
        with self._lock:
            if self._finals:
                self._spare = self._finals.pop(0)
                self._finals.append(self._opened(device))
            else:
                self._spare = self._opened(device)

    def end_job(self, device: str) -> None:
        """A job has ended and another one may follow. Of what measured only those of finals stay, which forget their
        problem, and of what compiles those that have nothing to do."""
        with self._lock:
            self._end_spare_and_next()
            self._finals = [child for child in self._finals if child.running]
            for child in self._finals:
                _tell_open(child, device)
            for child in () if self._pool is None else self._pool.drop_work():
                self._ending.add(child)

    def pool(self, prepare: JsonObject) -> CompilePool:
        """The pool, for the problem of ``prepare``; what it was compiling for another one is of no use any more."""
        if self._pool is None:
            if self._nursery is not None:
                self._nursery.begin()
            self._pool = CompilePool(prepare, workers=self._workers, command=self._command, nursery=self._nursery)
        else:
            self._pool.prepare(prepare)
        return self._pool

    def prepare_next_problem(self, prepare: Prepare) -> None:
        """Begin to prepare a process for the problem that will be measured next."""
        with self._lock:
            process = MeasuringProcess(prepare, self._take_spare(), limited=False)
            process.begin_preparing()
            self._next = prepare, process

    def take_screening(self, prepare: Prepare, *, limited: bool) -> MeasuringProcess:
        """What screens a problem: the process that was prepared for it, else the spare one, or one that starts with
        its first request."""
        with self._lock:
            known, self._next = self._next, None
            if known is not None and known[0] == prepare:
                return known[1]
            if known is not None:
                self._ending.add(known[1].child)
            return MeasuringProcess(prepare, self._take_spare(), limited=limited)

    def give_back_screening(self, process: MeasuringProcess) -> None:
        """Keep what screened for the next problem, which must not wait for what this one began, nor read its answers: a
        process that owes one is ended, and started again when it is needed."""
        if not process.owes_nothing():
            process.end()
        with self._lock:
            if self._spare is not None:
                self._ending.add(self._spare)
            self._spare = process.child

    def take_final(self, prepare: Prepare, *, limited: bool) -> MeasuringProcess:
        """A process that has not seen this problem: one that was in finals of others, or one that starts with its first
        request."""
        with self._lock:
            child = self._finals.pop(0) if self._finals else self._fresh()
            return MeasuringProcess(prepare, child, limited=limited)

    def give_back_final(self, process: MeasuringProcess) -> None:
        """Keep what was, or was to be, in a final, unless it owes an answer or there are enough."""
        free = process.owes_nothing()
        with self._lock:
            if free and len(self._finals) < MOST_FINALS:
                self._finals.append(process.child)
            else:
                self._ending.add(process.child)

    def end_finals(self) -> None:
        """End those that are kept for finals, and wait until their memory is free."""
        with self._lock:
            self._end_kept_finals()
            ending = self._ending.pop_all()
        for child in ending:
            child.end()

    def close(self) -> None:
        """End all of them; what was still compiling is lost."""
        with self._lock:
            self._end_spare_and_next()
            self._end_kept_finals()
            ending = self._ending.pop_all()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        for child in ending:
            child.end()

    def _end_spare_and_next(self) -> None:
        leaving = [] if self._next is None else [self._next[1].child]
        leaving += [] if self._spare is None else [self._spare]
        self._spare = self._next = None
        for child in leaving:
            self._ending.add(child)

    def _end_kept_finals(self) -> None:
        for child in self._finals:
            self._ending.add(child)
        self._finals = []

    def _take_spare(self) -> ChildProcess:
        taken, self._spare = self._spare, None
        return taken or self._fresh()

    def _opened(self, device: str) -> ChildProcess:
        child = self._fresh()
        _tell_open(child, device)
        return child

    def _fresh(self) -> ChildProcess:
        return ChildProcess(self._command, self._nursery)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Ending:
    """Killed processes. None is waited for, which takes a tenth of a second on a GPU, until it is gone or
    somebody has to."""

    def __init__(self) -> None:
        self._children: list[ChildProcess] = []

    def add(self, child: ChildProcess) -> None:
        """Kill it, and reap those that are gone."""
        child.kill()
        still = [*(one for one in self._children if one.running), child]
        for one in self._children:
            if one not in still:
                one.end()
        self._children = still

    def pop_all(self) -> list[ChildProcess]:
        """Those that may not be gone, for whoever waits for them."""
        children, self._children = self._children, []
        return children


def _tell_open(child: ChildProcess, device: str) -> None:
    with suppress(ChildCrashed):  # whoever prepares starts another one
        child.tell("open", Open(device).to_json())
