"""The threads behind a grid: every program once, errors come home, a forked child has its own threads."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from deuteron.compiler.targets.cpu import pool as pool_module
from deuteron.compiler.targets.cpu.pool import ThreadPool, thread_pool


class Recorder:
    """A grid's run function that remembers which programs ran on which thread, and takes ``seconds`` for each."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.ran: list[int] = []
        self.threads: set[int] = set()
        self._lock = threading.Lock()

    def __call__(self, first: int, last: int) -> bool:
        time.sleep(self.seconds * (last - first))
        with self._lock:
            self.ran += range(first, last)
            self.threads.add(threading.get_ident())
        return True


@pytest.mark.parametrize("total", [1, 2, 3, 100, 1000])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_every_program_runs_once(total, threads):
    recorder = Recorder(seconds=1e-4)
    ThreadPool().execute(total, threads, recorder)
    assert sorted(recorder.ran) == list(range(total))
    assert len(recorder.threads) <= threads


def test_long_grids_are_shared_and_short_ones_are_not(monkeypatch):
    long, short = Recorder(seconds=1e-3), Recorder(seconds=1e-3)
    ThreadPool().execute(60, 3, long)
    assert len(long.threads) > 1
    monkeypatch.setattr(pool_module, "WORTH_WAKING_NS", 10**12)
    ThreadPool().execute(60, 3, short)
    assert short.threads == {threading.get_ident()}


def test_a_stop_ends_the_grid():
    ran: list[int] = []

    def run(first: int, last: int) -> bool:
        time.sleep(1e-3)
        ran.extend(range(first, last))
        return last < 50

    ThreadPool().execute(10_000, 2, run)
    assert len(ran) < 5_000


def test_an_error_on_any_thread_is_raised_by_the_launch():
    def run(first: int, last: int) -> bool:
        time.sleep(1e-3)
        if first > 20:
            raise ValueError(f"program {first}")
        return True

    pool = ThreadPool()
    with pytest.raises(ValueError, match="program"):
        pool.execute(200, 2, run)
    recorder = Recorder(seconds=1e-4)
    pool.execute(50, 2, recorder)  # the threads are still there
    assert sorted(recorder.ran) == list(range(50))


def test_a_launch_waits_for_its_slowest_helper():
    me, ended = threading.get_ident(), []

    def run(first: int, last: int) -> bool:
        time.sleep(1e-3 if threading.get_ident() == me else 0.1)
        ended.extend(range(first, last))
        return True

    ThreadPool().execute(64, 4, run)
    assert sorted(ended) == list(range(64))


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which Windows lacks")
def test_a_forked_child_gets_its_own_threads():
    thread_pool().execute(40, 2, Recorder(seconds=1e-4))
    child = os.fork()
    if not child:
        recorder = Recorder(seconds=1e-4)
        thread_pool().execute(40, 2, recorder)
        os._exit(0 if sorted(recorder.ran) == list(range(40)) else 1)
    assert os.waitpid(child, 0)[1] == 0
