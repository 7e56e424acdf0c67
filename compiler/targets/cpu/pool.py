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

from ...cores import Cores, cores_beside, usable_cores
from ..together import check_together, too_few_threads
from .arena import ALIGNMENT
from .workers import ASLEEP, NONE_FAILED, Seat, SharedGrid, Status, workers

#: Pieces of a grid for each thread: enough to balance uneven programs, few enough to cost nothing.
PIECES_PER_THREAD = 8

#: The share of a grid that is run before other threads are woken.
PROBE_SHARE = 256

#: Estimated time below which a grid stays on the calling thread.
WORTH_WAKING_NS = 50_000

#: A grid that took so long the last time is shared without another estimate.
SURELY_WORTH_WAKING_NS = 10 * WORTH_WAKING_NS

#: Grids whose times are kept at the same time.
MOST_KNOWN = 1024

#: Estimated time from which a grid is worth being interrupted: handlers of signals run between its pieces then.
WORTH_INTERRUPTING_NS = 20_000_000

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
        status, memory = Status(0, 0, self._calls), _take_scratch()
        self.entry(self._arguments, first, last, self._sizes, memory.address(self._scratch_bytes), status)
        _local.scratch.append(memory)
        if status[0]:
            self.failures.append((status[1], status[0]))
            return False
        return True

    def shared(self, first: int, last: int, piece: int, together: bool = False) -> SharedGrid:
        """Programs ``first`` to ``last`` - 1 for several threads. The launch must outlive it."""
        arguments = _address(ctypes.c_char_p(self._arguments))
        sizes = ctypes.addressof(self._sizes)
        return SharedGrid(_address(self.entry), arguments, sizes, first, last, piece, 0, together)

    def take(self, seat: Seat, memory: _Scratch, patience: int = 0) -> None:
        """Make a thread's seat ready for this launch."""
        seat.patience = patience
        seat.scratch = memory.address(self._scratch_bytes)
        seat.status[0], seat.status[2] = 0, self._calls
        seat.failed_program = NONE_FAILED

    def leave(self, seat: Seat) -> None:
        """Note what failed on the seat's thread."""
        if seat.failed_program != NONE_FAILED:
            self.failures.append((seat.failed_program, seat.failed_code))


def _address(of: ctypes._FuncPointer | ctypes.c_char_p) -> int:
    return ctypes.cast(of, ctypes.c_void_p).value or 0


class ThreadPool:
    """Helpers beside the launching thread. A helper that wakes too late finds nothing to do."""

    def __init__(self) -> None:
        # Taken and given back in single steps, without a lock that an interrupt may leave held.
        self._helpers: list[_Helper] = []
        #: Nanoseconds that grids took which several threads shared, by their code and number of programs. Should other
        #: code have its place one day, its first estimate is a wrong one.
        self._lasted: dict[tuple[int, int], int] = {}

    def execute(self, total: int, threads: int, launch: GridLaunch) -> None:
        """Run programs 0..total-1 on up to ``threads`` threads; one that fails stops what has not begun.

        The first few run on the calling thread. If they say that the whole is a matter of microseconds, the rest
        follows there too, because waking a thread takes longer. Of a grid that took many times as long when it ran the
        last time all threads have a part from the beginning: one program of sixteen is an eighth of what two take.
        """
        grid, start = (id(launch.entry), total), time.perf_counter_ns()
        known = self._lasted.get(grid, 0) if threads > 1 else 0
        probe, estimate = 0, known
        if known < SURELY_WORTH_WAKING_NS:
            probe = total if threads <= 1 else max(1, total // PROBE_SHARE)
            if not launch.run(0, probe) or probe == total:
                return
            estimate = (time.perf_counter_ns() - start) * (total - probe) // probe
        if estimate < WORTH_WAKING_NS:
            launch.run(probe, total)
            return
        piece = max(1, -(-(total - probe) // (threads * PIECES_PER_THREAD)))
        self._share(launch, launch.shared(probe, total, piece), min(threads, total - probe) - 1, estimate)
        if len(self._lasted) >= MOST_KNOWN:
            self._lasted.clear()
        self._lasted[grid] = time.perf_counter_ns() - start

    def execute_together(self, total: int, launch: GridLaunch) -> None:
        """Run programs 0..total-1, each on a thread of its own, so that they may wait for each other; one that fails
        stops no other, and neither does an interrupt.

        Raises LaunchError, before any of them begins, for more than :data:`~..together.MOST_AT_ONCE` and where the
        system gives the process no more threads.
        """
        check_together(total, "the CPU")
        # A thread stays in its program until that ends, so with as many threads as programs each of them begins.
        self._share(launch, launch.shared(0, total, 1, together=True), total - 1, WORTH_INTERRUPTING_NS)

    def _share(self, launch: GridLaunch, grid: SharedGrid, count: int, estimate: int) -> None:
        """Run ``grid`` here and on so many helpers. ``estimate``: of its time, in nanoseconds."""
        helpers = self._borrow(count)
        try:
            own, memory = Seat(), _take_scratch()
            launch.take(own, memory)
            seats, states = ((ctypes.c_int64 * count)() for _ in range(2))
            seats[:] = [ctypes.addressof(helper.seat) for helper in helpers]
            places = [ctypes.addressof(part) for part in (grid, own, seats, states)]
            # What is spent on watching is well spent only where a core has nothing else to do.
            patience = workers().patience if count < usable_cores() and not grid.together else 0
            for helper in helpers:
                launch.take(helper.seat, helper.scratch, patience)
            watches = estimate >= WORTH_INTERRUPTING_NS
            if grid.together:
                _start_all(helpers, grid, lambda: workers().lead(*places, count, count, workers().patience, watches))
            else:
                cores = cores_beside()
                for helper in helpers:
                    helper.wake_if_asleep(cores)
                workers().lead(*places, 0, count, workers().patience, watches)
            _local.scratch.append(memory)
            for seat in (own, *(helper.seat for helper in helpers)):
                launch.leave(seat)
        finally:
            self._helpers.extend(helpers)

    def _borrow(self, count: int) -> list[_Helper]:
        taken: list[_Helper] = []
        try:
            while len(taken) < count:
                try:
                    taken.append(self._helpers.pop())  # the last to come back first: it may be watching still
                except IndexError:
                    taken.append(_Helper())
        except BaseException as error:
            self._helpers.extend(taken)
            if isinstance(error, RuntimeError):  # what Python raises where the system has no more
                raise too_few_threads(count + 1, len(taken) + 1) from error
            raise
        return taken


def _start_all(helpers: list[_Helper], grid: SharedGrid, lead: Callable[[], None]) -> None:
    """Post ``grid`` to all helpers, wake them and ``lead``. Programs that have begun wait for the others, so what a
    signal's handler raises meanwhile is raised when all have."""
    address, begun = ctypes.addressof(grid), 0
    try:
        for helper in helpers:
            helper.seat.state = address
            begun += 1
            helper.wake()
        lead()
    except BaseException:
        if grid.next < grid.last:
            for number, helper in enumerate(helpers):
                if number >= begun:
                    helper.seat.state = address
                helper.wake()
            lead()
        raise


class _Helper:
    def __init__(self) -> None:
        self.seat = Seat(ASLEEP)
        self.scratch = _Scratch()
        #: Held while there is nothing to wake for. A lock is let go in one step of the interpreter, which no signal's
        #: handler gets into, as it does into a semaphore.
        self._wake = threading.Lock()
        self._wake.acquire()
        #: Where it may run again once it has woken.
        self._cores: set[int] | None = None
        workers()  # compiled before any thread needs them
        self._thread = threading.Thread(target=self._loop, daemon=True, name="deuteron-cpu")
        self._thread.start()

    def wake_if_asleep(self, cores: Cores | None) -> None:
        """On one of the ``cores`` beside this one: systems like to put a thread that wakes beside the one that woke it,
        also where that one works on and other cores have nothing to do. A helper that has just gone to sleep is not
        seen; the others do its part."""
        if self.seat.state != ASLEEP:
            return
        if cores is not None and self._thread.native_id is not None:
            self._cores = cores.all
            with suppress(OSError):  # cores that the system has taken away meanwhile
                os.sched_setaffinity(self._thread.native_id, cores.beside)
        self.wake()

    def wake(self) -> None:
        """Whether it sleeps or is about to; one that finds nothing then sleeps again."""
        with suppress(RuntimeError):  # it is waking already
            self._wake.release()

    def _loop(self) -> None:
        serve, seat = workers().serve, ctypes.addressof(self.seat)
        while True:
            self._wake.acquire()
            cores, self._cores = self._cores, None
            if cores is not None:  # it runs where it should: no reason to stay there for ever
                with suppress(OSError):
                    os.sched_setaffinity(0, cores)
            serve(seat)


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


class _Own(threading.local):
    """Scratch areas of a thread that launches: more than one where what a kernel prints launches another."""

    def __init__(self) -> None:
        self.scratch: list[_Scratch] = []


_local = _Own()


def _take_scratch() -> _Scratch:
    """One of the calling thread, to be appended again."""
    return _local.scratch.pop() if _local.scratch else _Scratch()


@cache
def _pool(process: int) -> ThreadPool:
    return ThreadPool()


def thread_pool() -> ThreadPool:
    """The pool of this process; a forked child gets its own, because threads do not survive a fork."""
    return _pool(os.getpid())
