"""The child processes of a job, which serve one shape after the other: starting one takes longer than a small kernel's
whole search may."""

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
    :meth:`expect`.
    """

    def __init__(
        self, *, workers: int | None = None, command: Sequence[str] = WORKER, nursery: Nursery | None = None
    ) -> None:
        self._workers, self._command, self._nursery = workers, command, nursery
        #: How many jobs were begun with them.
        self.jobs = 0
        self._pool: CompilePool | None = None
        self._lock = threading.Lock()  # of the four below
        self._idle: ChildProcess | None = None
        self._expected: tuple[Prepare, MeasuringProcess] | None = None
        self._finals: list[ChildProcess] = []
        self._ending: list[ChildProcess] = []

    def open(self, device: str) -> None:
        """Begin to start a process that will measure on a GPU, before it is known what, unless the job before left
        one; then one for finals takes its place."""
        self.jobs += 1
        if self._nursery is not None:
            self._nursery.begin()
        with self._lock:
            if self._finals:
                self._idle = self._finals.pop(0)
                self._finals.append(self._opened(device))
            else:
                self._idle = self._opened(device)

    def rest(self, device: str) -> None:
        """A job has ended and another one may follow. Of what measured only those of finals stay, which forget their
        problem, and of what compiles those that have nothing to do."""
        with self._lock:
            leaving = [] if self._expected is None else [self._expected[1].child]
            leaving += [] if self._idle is None else [self._idle]
            self._idle = self._expected = None
            for child in leaving:
                self._end(child)
            self._finals = [child for child in self._finals if child.running]
            for child in self._finals:
                _tell_open(child, device)
        if self._pool is not None:
            self._pool.rest()

    def pool(self, prepare: JsonObject) -> CompilePool:
        """The pool, for the problem of ``prepare``; what it was compiling for another one is of no use any more."""
        if self._pool is None:
            if self._nursery is not None:
                self._nursery.begin()
            self._pool = CompilePool(prepare, workers=self._workers, command=self._command, nursery=self._nursery)
        else:
            self._pool.prepare(prepare)
        return self._pool

    def expect(self, prepare: Prepare) -> None:
        """Begin to prepare a process for the problem that will be measured next."""
        with self._lock:
            expected = MeasuringProcess(prepare, self._take_idle(), limited=False)
            expected.begin()
            self._expected = (prepare, expected)

    def measuring(self, prepare: Prepare, *, limited: bool) -> MeasuringProcess:
        """A process for a problem: the one that was expected to serve it, else the idle one, or one that starts with
        its first request."""
        with self._lock:
            known, self._expected = self._expected, None
            if known is not None and known[0] == prepare:
                return known[1]
            if known is not None:
                self._end(known[1].child)
            return MeasuringProcess(prepare, self._take_idle(), limited=limited)

    def final(self, prepare: Prepare, *, limited: bool) -> MeasuringProcess:
        """A process that has not seen this problem: one that was in finals of others, or one that starts with its first
        request."""
        with self._lock:
            child = self._finals.pop(0) if self._finals else self._fresh()
            return MeasuringProcess(prepare, child, limited=limited)

    def give_back(self, process: MeasuringProcess) -> None:
        """Keep what screened for the next problem, which must not wait for what this one began, nor read its answers: a
        process that owes one is ended, and started again when it is needed."""
        if not process.settled():
            process.end()
        with self._lock:
            if self._idle is not None:
                self._end(self._idle)
            self._idle = process.child

    def give_back_final(self, process: MeasuringProcess) -> None:
        """Keep what was, or was to be, in a final; likewise."""
        settled = process.settled()
        with self._lock:
            if settled and len(self._finals) < MOST_FINALS:
                self._finals.append(process.child)
            else:
                self._end(process.child)

    def end_finals(self) -> None:
        """End those that are kept for finals, and wait until their memory is free."""
        with self._lock:
            ending, self._finals, self._ending = [*self._finals, *self._ending], [], []
        for child in ending:
            child.end()

    def close(self) -> None:
        """End all of them; what was still compiling is lost."""
        with self._lock:
            expected = [] if self._expected is None else [self._expected[1].child]
            for child in [*expected, *self._finals, *([] if self._idle is None else [self._idle])]:
                self._end(child)
            self._idle = self._expected = None
            self._finals.clear()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        for child in self._ending:
            child.end()
        self._ending.clear()

    def _take_idle(self) -> ChildProcess:
        taken, self._idle = self._idle, None
        return taken or self._fresh()

    def _opened(self, device: str) -> ChildProcess:
        child = self._fresh()
        _tell_open(child, device)
        return child

    def _fresh(self) -> ChildProcess:
        return ChildProcess(self._command, self._nursery)

    def _end(self, child: ChildProcess) -> None:
        """Without waiting until it is gone, which takes a tenth of a second on a GPU. Reaps those that are gone."""
        child.kill()
        still = [*(one for one in self._ending if one.running), child]
        for one in self._ending:
            if one not in still:
                one.end()
        self._ending = still

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _tell_open(child: ChildProcess, device: str) -> None:
    with suppress(ChildCrashed):  # whoever prepares starts another one
        child.tell("open", Open(device).to_json())
