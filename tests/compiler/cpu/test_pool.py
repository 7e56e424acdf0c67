"""The threads behind a grid: every program once, failures come home, a forked child has its own threads."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.targets.cpu import pool as pool_module
from deuteron.compiler.targets.cpu import workers as workers_module
from deuteron.compiler.targets.cpu.pool import ENTRY, GridLaunch, ThreadPool, thread_pool
from deuteron.compiler.targets.cpu.workers import ASLEEP, BUSY, IDLE, Seat, SharedGrid, Status, workers


class Recorder(GridLaunch):
    """A launch that remembers which programs ran on which thread. A program takes ``seconds``, and ``slow`` ones where
    it is not on the launching thread; those in ``failing`` report their number as the code."""

    def __init__(self, seconds: float = 0.0, failing: frozenset[int] = frozenset(), slow: float | None = None) -> None:
        super().__init__(ENTRY(self.programs), scratch_bytes=100)
        self.seconds, self.failing, self.slow = seconds, failing, slow
        self.ran: list[int] = []
        self.threads: set[int] = set()
        self.scratch: set[int] = set()
        self._lock, self._launched_by = threading.Lock(), threading.get_ident()

    def programs(self, arguments: int, first: int, last: int, sizes: int, scratch: int, status: int) -> None:
        """Instead of a kernel's machine code."""
        mine = threading.get_ident() == self._launched_by
        for program in range(first, last):
            time.sleep(self.seconds if mine or self.slow is None else self.slow)
            if program in self.failing:
                Status.from_address(status)[:2] = program + 1, program
                return
            with self._lock:
                self.ran.append(program)
                self.threads.add(threading.get_ident())
                self.scratch.add(scratch)


@pytest.mark.parametrize("total", [1, 2, 3, 100, 1000])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_every_program_runs_once(total, threads):
    recorder = Recorder(seconds=1e-4)
    ThreadPool().execute(total, threads, recorder)
    assert sorted(recorder.ran) == list(range(total))
    assert len(recorder.threads) <= threads
    assert len(recorder.scratch) == len(recorder.threads)
    assert all(address % 64 == 0 for address in recorder.scratch)


def test_long_grids_are_shared_and_short_ones_are_not(monkeypatch):
    long, short = Recorder(seconds=1e-3), Recorder(seconds=1e-3)
    ThreadPool().execute(60, 3, long)
    assert len(long.threads) > 1
    monkeypatch.setattr(pool_module, "WORTH_WAKING_NS", 10**12)
    ThreadPool().execute(60, 3, short)
    assert short.threads == {threading.get_ident()}


def test_a_grid_that_lasted_is_shared_from_its_first_program():
    """Its two programs wait for each other, which ends in no time where the first one runs alone."""
    waiting = threading.Barrier(2)
    lasting = [True]

    def programs(arguments: int, first: int, last: int, sizes: int, scratch: int, status: int) -> None:
        for _ in range(first, last):
            if lasting[0]:
                time.sleep(2e-3)
            else:
                waiting.wait(20)

    pool, launch = ThreadPool(), GridLaunch(ENTRY(programs))
    pool.execute(2, 2, launch)
    lasting[0] = False
    pool.execute(2, 2, launch)
    assert waiting.n_waiting == 0 and not waiting.broken


def test_what_is_known_of_a_grid_is_what_its_last_run_took():
    pool, recorder = ThreadPool(), Recorder(seconds=2e-2)
    pool.execute(2, 2, recorder)
    recorder.seconds = 0.0
    for _ in range(20):  # on a busy machine one may last, too
        pool.execute(2, 2, recorder)
    assert pool._lasted[id(recorder.entry), 2] < 2e7


def test_a_program_that_fails_ends_the_grid():
    recorder = Recorder(seconds=1e-3, failing=frozenset({50}))
    ThreadPool().execute(2000, 2, recorder)
    assert len(recorder.ran) < 1000
    assert recorder.failures == [(50, 51)]


def test_what_fails_on_any_thread_comes_home():
    pool = ThreadPool()
    for failing in (0, 7, 150, 199):
        recorder = Recorder(seconds=1e-4, failing=frozenset({failing}))
        pool.execute(200, 3, recorder)
        assert recorder.failures == [(failing, failing + 1)]
    recorder = Recorder(seconds=1e-4)
    pool.execute(50, 2, recorder)  # the threads are still there, and nothing that failed before
    assert sorted(recorder.ran) == list(range(50))
    assert not recorder.failures


def test_of_programs_that_run_together_one_that_fails_stops_no_other():
    pool = ThreadPool()
    for _ in range(5):
        recorder = Recorder(failing=frozenset({0, 3}))
        pool.execute_together(40, recorder)
        assert sorted(recorder.ran) == [1, 2, *range(4, 40)]
        assert min(recorder.failures) == (0, 1)


def test_a_launch_waits_for_its_slowest_helper():
    recorder = Recorder(seconds=1e-3, slow=0.1)
    ThreadPool().execute(64, 4, recorder)
    assert sorted(recorder.ran) == list(range(64))


def test_launches_from_many_threads_do_not_mix():
    pool = ThreadPool()
    recorders = [Recorder(seconds=1e-4) for _ in range(12)]
    with ThreadPoolExecutor(6) as callers:
        list(callers.map(lambda r: pool.execute(40, 3, r), recorders))
    assert all(sorted(r.ran) == list(range(40)) for r in recorders)


def test_threads_are_kept_for_the_next_launch():
    pool = ThreadPool()
    before = threading.active_count()
    for _ in range(5):
        pool.execute(40, 3, Recorder(seconds=1e-4))
    assert threading.active_count() <= before + 2


@deuteron.jit
def doubled(x, y, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) * 2)


@pytest.mark.parametrize("pause", [0.0, 2e-4, 2e-3])
def test_launches_behind_each_other(pause, monkeypatch):
    """While helpers watch, as they go to sleep and when they sleep: no program is left out or runs on old arguments."""
    monkeypatch.setattr(pool_module, "WORTH_WAKING_NS", 0)
    with knobs.cpu_threads.scope(3):
        for number in range(300 if not pause else 60):
            x, y = np.full(64 * 16, number, np.int32), np.zeros(64 * 16, np.int32)
            doubled[(64,)](x, y, N=16)
            assert (y == 2 * number).all()
            time.sleep(pause * (number % 3))


def led(grid: SharedGrid, seats: list[Seat], watches: bool = False) -> None:
    """Lead a grid by the seats of helpers."""
    count, own = len(seats), Seat()
    places, states = ((ctypes.c_int64 * count)() for _ in range(2))
    places[:] = [ctypes.addressof(seat) for seat in seats]
    workers().lead(*map(ctypes.addressof, (grid, own, places, states)), 0, count, 3, watches)


def test_seats_whose_helpers_do_not_come_are_as_before():
    run: list[tuple[int, int]] = []
    launch = GridLaunch(ENTRY(lambda arguments, first, last, sizes, scratch, status: run.append((first, last))))
    seats = [Seat(ASLEEP), Seat(IDLE)]
    led(launch.shared(0, 10, 4), seats)
    assert run == [(0, 4), (4, 8), (8, 10)]
    assert [seat.state for seat in seats] == [ASLEEP, IDLE]


@pytest.mark.parametrize("state", [IDLE, ASLEEP])
def test_a_helper_that_finds_nothing_sleeps(state):
    """Also one that was woken for a grid that others have done."""
    seat = Seat(state, 3)
    workers().serve(ctypes.addressof(seat))
    assert seat.state == ASLEEP


def test_a_helper_runs_what_is_posted():
    run: list[int] = []
    launch = GridLaunch(ENTRY(lambda arguments, first, last, sizes, scratch, status: run.extend(range(first, last))))
    grid, seat = launch.shared(0, 10, 4), Seat()
    launch.take(seat, pool_module._Scratch(), 3)
    seat.state = ctypes.addressof(grid)
    workers().serve(ctypes.addressof(seat))
    assert run == list(range(10))
    assert seat.state == ASLEEP


def test_a_leader_waits_for_a_busy_seat():
    """Of a helper that took the grid as soon as it was posted."""
    seat, began = Seat(), time.monotonic()

    def entry(arguments: int, first: int, last: int, sizes: int, scratch: int, status: int) -> None:
        seat.state = BUSY
        threading.Timer(0.1, lambda: setattr(seat, "state", IDLE)).start()

    led(GridLaunch(ENTRY(entry)).shared(0, 1, 1), [seat])
    assert seat.state == IDLE and time.monotonic() - began >= 0.1


def test_two_seats_share_no_cache_line():
    assert ctypes.sizeof(Seat) >= Seat._padding.offset + 64


def test_helpers_watch_about_as_long_as_is_said():
    """In time of the processor: now and then a look gives the core to who waits for it, for as long as that runs."""
    spent = []
    for _ in range(5):
        seat, begin = Seat(IDLE, workers().patience), time.thread_time_ns()
        workers().serve(ctypes.addressof(seat))
        spent.append(time.thread_time_ns() - begin)
    assert min(spent) < 20 * workers_module.WATCHED_NS


def test_what_a_kernel_prints_may_launch_another():
    """Each has a scratch area of its own."""
    inner = Recorder()
    inner._scratch_bytes = 1 << 16

    def entry(arguments: int, first: int, last: int, sizes: int, scratch: int, status: int) -> None:
        ctypes.memset(scratch, 7, 1000)
        inner.run(0, 1)
        assert ctypes.string_at(scratch, 1000) == bytes([7]) * 1000
        ended.append(scratch)

    ended: list[int] = []
    GridLaunch(ENTRY(entry), scratch_bytes=1000).run(0, 1)
    assert len(ended) == 1 and ended[0] not in inner.scratch


PROGRAM = """
import numpy as np, deuteron, deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.targets.cpu import pool
pool.WORTH_WAKING_NS = 0
@deuteron.jit
def doubled(x, y, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) * 2)
x, y = np.ones(1024, np.int32), np.zeros(1024, np.int32)
with knobs.cpu_threads.scope(3):
    for _ in range(20):
        doubled[(64,)](x, y, N=16)
print(int(y.sum()), flush=True)
"""


def test_a_process_ends_while_helpers_watch(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    for _ in range(3):
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "2048\n"), done.stderr


class Stopped(Exception):
    """What the handler of an alarm raises."""


@pytest.fixture
def alarms() -> Iterator[Callable[[float], None]]:
    """Raise Stopped in the main thread after so many seconds."""

    def stop(number: int, frame: object) -> None:
        raise Stopped

    if not hasattr(signal, "setitimer"):
        pytest.skip("needs timers that interrupt")
    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@deuteron.jit
def slow(x, turns):
    """Some milliseconds, and 1 at the end."""
    value = tl.load(x + tl.program_id(0))
    for _ in range(turns):
        value = tl.exp2(value * -0.5)
    tl.store(x + tl.program_id(0), tl.where(value > 0, 1.0, 2.0))


def turns_in(seconds: float) -> int:
    """How many turns a program has that takes so long."""
    slow[(1,)](np.zeros(1, np.float32), 100_000)  # compiles
    begin = time.perf_counter()
    slow[(1,)](np.zeros(1, np.float32), 100_000)
    return int(100_000 * seconds / (time.perf_counter() - begin)) // 16 * 16


def test_an_interrupt_ends_a_grid_when_its_helpers_have_left_it(alarms):
    """They read what belongs to the launch that is interrupted."""
    x, turns = np.zeros(1000, np.float32), turns_in(4e-3)
    alarms(0.2)
    with knobs.cpu_threads.scope(3), pytest.raises(Stopped):
        slow[(len(x),)](x, turns)
    ran = int((x == 1).sum())
    assert 0 < ran < 700
    time.sleep(0.3)
    assert int((x == 1).sum()) == ran


def test_an_interrupt_waits_for_programs_that_run_together(alarms):
    x, turns = np.zeros(4, np.float32), turns_in(0.3)
    alarms(0.1)
    with pytest.raises(Stopped):
        slow[(len(x),)](x, turns, launch_cooperative_grid=True)
    assert (x == 1).all()


@deuteron.jit
def meet(arrived, n):
    tl.atomic_add(arrived, 1)
    while tl.atomic_add(arrived, 0) < n:
        pass


def test_programs_that_wait_for_each_other_all_begin_though_interrupted(monkeypatch):
    wake, woken = pool_module._Helper.wake, []

    def interrupted(helper: pool_module._Helper) -> None:
        woken.append(helper)
        if len(woken) == 2:
            raise Stopped
        wake(helper)

    monkeypatch.setattr(pool_module._Helper, "wake", interrupted)
    arrived = np.zeros(1, np.int32)
    with pytest.raises(Stopped):
        meet[(4,)](arrived, 4, launch_cooperative_grid=True)
    assert arrived[0] == 4


def test_interrupts_anywhere_leave_a_pool_that_works(alarms, monkeypatch):
    """Before, while and after helpers are woken, grids are posted and done."""
    monkeypatch.setattr(pool_module, "WORTH_WAKING_NS", 0)
    pool, before, stopped = ThreadPool(), threading.active_count(), 0
    entry = ENTRY(ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value or 0)  # machine code that does nothing
    for turn in range(400):
        together = turn % 2
        try:
            alarms(1e-6 + turn % 100 * 4e-6)
            if together:
                pool.execute_together(3, GridLaunch(entry))
            else:
                pool.execute(64, 3, GridLaunch(entry))
            alarms(0)
        except Stopped:
            stopped += 1
        if turn % 40 == 0:
            recorder = Recorder()
            pool.execute_together(4, recorder)
            assert sorted(recorder.ran) == list(range(4))
    assert stopped > 20
    recorder = Recorder(seconds=1e-3)
    pool.execute(100, 3, recorder)
    assert sorted(recorder.ran) == list(range(100))
    assert len(recorder.threads) > 1
    assert threading.active_count() <= before + 12


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which Windows lacks")
def test_a_forked_child_gets_its_own_threads():
    thread_pool().execute(40, 2, Recorder(seconds=1e-4))
    child = os.fork()
    if not child:
        recorder = Recorder(seconds=1e-4)
        thread_pool().execute(40, 2, recorder)
        os._exit(0 if sorted(recorder.ran) == list(range(40)) else 1)
    assert os.waitpid(child, 0)[1] == 0
