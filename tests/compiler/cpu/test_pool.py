"""The threads behind a grid: every program once, failures come home, a forked child has its own threads."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
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


def test_a_seat():
    """Its states as they follow each other."""
    run: list[tuple[int, int]] = []
    entry = ENTRY(lambda arguments, first, last, sizes, scratch, status: run.append((first, last)))
    launch, code = GridLaunch(entry), workers()
    grid, seat = launch.shared(0, 10, 4), launch.seat(pool_module._Scratch(), Seat(ASLEEP))
    at, posted = ctypes.addressof(seat), ctypes.addressof(grid)
    assert code.post(at, posted) == ASLEEP
    code.serve(at, 3)
    assert run == [(0, 4), (4, 8), (8, 10)]
    assert seat.state == ASLEEP
    assert code.finish(at, posted, 3)
    seat.state = IDLE
    assert code.post(at, posted) == IDLE
    assert code.finish(at, posted, 3)  # withdrawn, as no helper has begun it
    assert seat.state == IDLE
    seat.state = BUSY
    assert not code.finish(at, posted, 3)


def test_two_seats_share_no_cache_line():
    assert ctypes.sizeof(Seat) >= Seat._padding.offset + 64
    assert SharedGrid.together.offset + 8 == ctypes.sizeof(SharedGrid)


def test_helpers_watch_about_as_long_as_is_said():
    code, seat = workers(), Seat(IDLE)
    spent = []
    for _ in range(5):
        seat.state, begin = IDLE, time.perf_counter_ns()
        code.serve(ctypes.addressof(seat), code.patience)
        spent.append(time.perf_counter_ns() - begin)
        assert seat.state == ASLEEP
    assert min(spent) < 20 * workers_module.WATCHED_NS


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


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that interrupt")
def test_an_interrupt_waits_for_helpers():
    """They read what belongs to the launch that is interrupted."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    recorder, before = Recorder(seconds=1e-3, slow=0.2), signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            ThreadPool().execute(40, 3, recorder)
        ran = len(recorder.ran)
        time.sleep(0.3)
        assert len(recorder.ran) == ran
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which Windows lacks")
def test_a_forked_child_gets_its_own_threads():
    thread_pool().execute(40, 2, Recorder(seconds=1e-4))
    child = os.fork()
    if not child:
        recorder = Recorder(seconds=1e-4)
        thread_pool().execute(40, 2, recorder)
        os._exit(0 if sorted(recorder.ran) == list(range(40)) else 1)
    assert os.waitpid(child, 0)[1] == 0
