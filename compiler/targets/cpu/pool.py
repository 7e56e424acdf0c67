"""Threads that run the programs of a grid. They live as long as the process, watch for the next launch for a while
(:mod:`.workers`), and sleep."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from ..together import check_together, too_few_threads
from .arena import ALIGNMENT
from .workers import ASLEEP, IDLE, NONE_FAILED, Seat, SharedGrid, Status, workers

#: Pieces of a grid for each thread: enough to balance uneven programs, few enough to cost nothing.
PIECES_PER_THREAD = 8

#: The share of a grid that is run before other threads are woken.
PROBE_SHARE = 256

#: Estimated time below which a grid stays on the calling thread.
WORTH_WAKING_NS = 50_000

#: Seconds between two looks at a helper that takes longer than it is watched.
LOOK_AGAIN = 0.0002

#: Machine code of a kernel: (arguments, first, last, sizes of the grid, scratch area, status) runs programs first to
#: last - 1.
ENTRY = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)


class GridLaunch:
    """One launch of a kernel. ``arguments``: a slot of 8 bytes for each; ``printer``: what ``tl.device_print`` calls.
    Programs whose assertion failed are added to ``failures``, with its code: the first of each thread."""

    def __init__(
        self,
        entry: ctypes._FuncPointer,
        arguments: bytes = b"",
        grid: tuple[int, int, int] = (1, 1, 1),
        scratch_bytes: int = 0,
        printer: ctypes._FuncPointer | None = None,
    ) -> None:
        self.entry, self._arguments, self._sizes = entry, arguments, (ctypes.c_int32 * 3)(*grid)
        self._scratch_bytes, self._printer = scratch_bytes, printer
        self._calls = _address(printer) if printer else 0
        self.failures: list[tuple[int, int]] = []

    def run(self, first: int, last: int) -> bool:
        """Run programs ``first`` to ``last`` - 1 on the calling thread; False if one failed."""
        status = Status(0, 0, self._calls)
        self.entry(self._arguments, first, last, self._sizes, _own_scratch().address(self._scratch_bytes), status)
        if status[0]:
            self.failures.append((status[1], status[0]))
            return False
        return True

    def shared(self, first: int, last: int, piece: int, together: bool = False) -> SharedGrid:
        """Programs ``first`` to ``last`` - 1 for several threads. The launch must outlive it."""
        arguments = _address(ctypes.c_char_p(self._arguments))
        sizes = ctypes.addressof(self._sizes)
        return SharedGrid(_address(self.entry), arguments, sizes, first, last, piece, 0, together)

    def seat(self, memory: _Scratch, seat: Seat | None = None) -> Seat:
        """Make a thread's seat ready for this launch; a new one where there is none."""
        seat = seat or Seat(IDLE)
        seat.scratch = memory.address(self._scratch_bytes)
        seat.status[0], seat.status[2] = 0, self._calls
        seat.failed_program = NONE_FAILED
        return seat

    def leave(self, seat: Seat) -> None:
        """Note what failed on the seat's thread."""
        if seat.failed_program != NONE_FAILED:
            self.failures.append((seat.failed_program, seat.failed_code))


def _address(of: ctypes._FuncPointer | ctypes.c_char_p) -> int:
    return ctypes.cast(of, ctypes.c_void_p).value or 0


class ThreadPool:
    """Helpers beside the launching thread. A helper that wakes too late finds nothing to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helpers: list[_Helper] = []

    def execute(self, total: int, threads: int, launch: GridLaunch) -> None:
        """Run programs 0..total-1 on up to ``threads`` threads; one that fails stops what has not begun.

        The first few run on the calling thread. If they say that the whole is a matter of microseconds, the rest
        follows there too, because waking a thread takes longer.
        """
        probe = total if threads <= 1 else max(1, total // PROBE_SHARE)
        start = time.perf_counter_ns()
        if not launch.run(0, probe) or probe == total:
            return
        estimate = (time.perf_counter_ns() - start) * (total - probe) // probe
        if estimate < WORTH_WAKING_NS:
            launch.run(probe, total)
            return
        piece = max(1, -(-(total - probe) // (threads * PIECES_PER_THREAD)))
        self._share(launch, launch.shared(probe, total, piece), min(threads, total - probe) - 1, _cores_beside())

    def execute_together(self, total: int, launch: GridLaunch) -> None:
        """Run programs 0..total-1, each on a thread of its own, so that they may wait for each other; one that fails
        stops no other.

        Raises LaunchError, before any of them begins, for more than :data:`~..together.MOST_AT_ONCE` and where the
        system gives the process no more threads.
        """
        check_together(total, "the CPU")
        # A thread stays in its program until that ends, so with as many threads as programs each of them begins.
        self._share(launch, launch.shared(0, total, 1, together=True), total - 1, _cores())

    def _share(self, launch: GridLaunch, grid: SharedGrid, count: int, cores: set[int]) -> None:
        helpers = self._borrow(count)
        try:
            for helper in helpers:
                helper.start_on(launch, grid, cores)
            seat = launch.seat(_own_scratch())
            workers().work(ctypes.addressof(grid), ctypes.addressof(seat))
            launch.leave(seat)
        finally:
            _finish(helpers, launch, grid)
            with self._lock:
                self._helpers += helpers

    def _borrow(self, count: int) -> list[_Helper]:
        with self._lock:
            # The last to come back come first: they may be watching still.
            taken = [self._helpers.pop() for _ in range(min(count, len(self._helpers)))]
        try:
            while len(taken) < count:
                taken.append(_Helper())
        except RuntimeError as error:  # what Python raises where the system has no more
            with self._lock:
                self._helpers += taken
            raise too_few_threads(count + 1, len(taken) + 1) from error
        return taken


def _finish(helpers: list[_Helper], launch: GridLaunch, grid: SharedGrid) -> None:
    """Wait until no helper is at the grid, whatever happens meanwhile: they read what belongs to the caller."""
    interrupt: BaseException | None = None
    waiting = list(helpers)
    while waiting:
        try:
            if waiting[-1].finish(grid):
                launch.leave(waiting.pop().seat)
            else:
                time.sleep(LOOK_AGAIN)
        except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt, raised below
            grid.stopped, interrupt = 1, error
    if interrupt is not None:
        raise interrupt


class _Helper:
    def __init__(self) -> None:
        self.seat = Seat(ASLEEP)
        self._scratch = _Scratch()
        self._wake = threading.Semaphore(0)
        self._cores: set[int] = set()
        workers()  # compiled before any thread needs them
        self._thread = threading.Thread(target=self._loop, daemon=True, name="deuteron-cpu")
        self._thread.start()

    def start_on(self, launch: GridLaunch, grid: SharedGrid, cores: set[int]) -> None:
        """Post the grid. A helper that sleeps wakes on one of ``cores``, where there are any."""
        launch.seat(self._scratch, self.seat)
        if workers().post(ctypes.addressof(self.seat), ctypes.addressof(grid)) != ASLEEP:
            return
        if cores and cores != self._cores and self._thread.native_id is not None:
            with suppress(OSError):  # cores that the system has taken away meanwhile
                os.sched_setaffinity(self._thread.native_id, cores)
            self._cores = cores
        self._wake.release()

    def finish(self, grid: SharedGrid) -> bool:
        """Withdraw the grid if the helper has not begun it; False if it is still at it after a while."""
        found = workers()
        return bool(found.finish(ctypes.addressof(self.seat), ctypes.addressof(grid), found.patience))

    def _loop(self) -> None:
        found, seat = workers(), ctypes.addressof(self.seat)
        while True:
            self._wake.acquire()
            found.serve(seat, found.patience)


class _Scratch:
    """A scratch area that grows: of one thread."""

    def __init__(self) -> None:
        self._size, self._address = -1, 0

    def address(self, size: int) -> int:
        """The address of at least ``size`` bytes, aligned to :data:`ALIGNMENT`."""
        if self._size < size:
            self._memory = ctypes.create_string_buffer(size + ALIGNMENT)
            self._address = -(-ctypes.addressof(self._memory) // ALIGNMENT) * ALIGNMENT
            self._size = size
        return self._address


_local = threading.local()


def _own_scratch() -> _Scratch:
    """That of the calling thread."""
    held: _Scratch | None = getattr(_local, "scratch", None)
    if held is None:
        held = _local.scratch = _Scratch()
    return held


def _cores() -> set[int]:
    """Where the calling thread may run; empty where the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _cores_beside() -> set[int]:
    """Those but for the one where it runs: systems like to put a thread that wakes beside the one that woke it, also
    where that one works on and other cores have nothing to do. Empty where the system does not say."""
    where = _core_asked()
    return _cores() - {where()} if where is not None else set()


@cache
def _core_asked() -> Callable[[], int] | None:
    """The C library's function that says on which core a thread runs."""
    library = ctypes.CDLL(None) if os.name == "posix" else None
    return getattr(library, "sched_getcpu", None)


@cache
def _pool(process: int) -> ThreadPool:
    return ThreadPool()


def thread_pool() -> ThreadPool:
    """The pool of this process; a forked child gets its own, because threads do not survive a fork."""
    return _pool(os.getpid())
