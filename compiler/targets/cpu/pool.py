"""Threads that run the programs of a grid. They live as long as the process and sleep between launches."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from functools import cache

from ..together import check_together, too_few_threads

#: Pieces of a grid for each thread: enough to balance uneven programs, few enough to cost nothing.
PIECES_PER_THREAD = 8

#: The share of a grid that is run before other threads are woken.
PROBE_SHARE = 256

#: Estimated time below which a grid stays on the calling thread.
WORTH_WAKING_NS = 50_000

#: Runs programs first..last-1; returns False if the launch must stop.
Run = Callable[[int, int], bool]


class GridRun:
    """One launch: pieces of the programs first..last-1 are handed out in order until none is left or one stops it."""

    def __init__(self, first: int, last: int, threads: int, run: Run) -> None:
        self.first, self.last = first, last
        self.piece = max(1, -(-(last - first) // (threads * PIECES_PER_THREAD)))
        self.run = run
        self.failure: BaseException | None = None
        self._pieces = itertools.count()  # next() on it is atomic
        self._stopped = False

    def work(self) -> None:
        """Run pieces on the calling thread until there are none."""
        try:
            while not self._stopped:
                first = self.first + next(self._pieces) * self.piece
                if first >= self.last:
                    break
                if not self.run(first, min(first + self.piece, self.last)):
                    self._stopped = True
        except BaseException as error:  # noqa: BLE001 - handed to the thread that launched
            self.failure = error
            self._stopped = True

    def end(self) -> None:
        """Raises what a thread raised."""
        if self.failure is not None:
            raise self.failure


class ThreadPool:
    """Helpers beside the launching thread. A helper that wakes too late finds nothing to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helpers: list[_Helper] = []

    def execute(self, total: int, threads: int, run: Run) -> None:
        """Run programs 0..total-1 on up to ``threads`` threads; ``run(first, last)`` returns False to stop.

        The first few run on the calling thread. If they say that the whole is a matter of microseconds, the rest
        follows there too, because waking a thread takes longer.
        """
        probe = total if threads <= 1 else max(1, total // PROBE_SHARE)
        start = time.perf_counter_ns()
        if not run(0, probe) or probe == total:
            return
        estimate = (time.perf_counter_ns() - start) * (total - probe) // probe
        if estimate < WORTH_WAKING_NS:
            run(probe, total)
            return
        self._share(GridRun(probe, total, threads, run), min(threads, total - probe) - 1)

    def execute_together(self, total: int, run: Run) -> None:
        """Run programs 0..total-1, each on a thread of its own, so that they may wait for each other; what one
        returns stops no other.

        Raises LaunchError, before any of them begins, for more than :data:`~..together.MOST_AT_ONCE` and where the
        system gives the process no more threads.
        """
        check_together(total, "the CPU")
        job = GridRun(0, total, total, lambda first, last: run(first, last) or True)
        # A thread stays in its program until that ends, so with as many threads as programs each of them begins.
        self._share(job, total - 1)

    def _share(self, job: GridRun, count: int) -> None:
        helpers = self._borrow(count)
        for helper in helpers:
            helper.start_on(job)
        try:
            job.work()
            for helper in helpers:
                helper.finish()
            job.end()
        finally:
            with self._lock:
                self._helpers += helpers

    def _borrow(self, count: int) -> list[_Helper]:
        with self._lock:
            taken = self._helpers[:count] if count > 0 else []
            self._helpers = self._helpers[len(taken) :]
        try:
            while len(taken) < count:
                taken.append(_Helper())
        except RuntimeError as error:  # what Python raises where the system has no more
            with self._lock:
                self._helpers += taken
            raise too_few_threads(count + 1, len(taken) + 1) from error
        return taken


class _Helper:
    def __init__(self) -> None:
        self._wake = threading.Semaphore(0)
        self._taken = threading.Lock()
        self._job: GridRun | None = None
        threading.Thread(target=self._loop, daemon=True, name="deuteron-cpu").start()

    def start_on(self, job: GridRun) -> None:
        self._job = job
        self._wake.release()

    def finish(self) -> None:
        """Withdraw the job if the helper has not begun it; wait if it has."""
        with self._taken:
            self._job = None

    def _loop(self) -> None:
        while True:
            self._wake.acquire()
            with self._taken:
                job, self._job = self._job, None
                if job is not None:
                    job.work()


@cache
def _pool(process: int) -> ThreadPool:
    return ThreadPool()


def thread_pool() -> ThreadPool:
    """The pool of this process; a forked child gets its own, because threads do not survive a fork."""
    return _pool(os.getpid())
