"""Which cores processes take for linear algebra that prepare to measure beside others.

Threads of OpenBLAS wait for each other by spinning. With a thread for each of 16 cores six processes came to 425
GFLOP/s together, with three threads each to 797, a process alone to 575. So each process has its part of the cores, and
one after the other those of all: the first ones to wait for an expected result have it sooner.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deuteron.compiler import knobs
from deuteron.compiler.runtime.cuda.driver import cuda_device_count

#: Cores that processes which measure, and their parents, have for themselves, as a part of all.
_LEFT_ALONE = 1 / 4
_PATIENCE_SECONDS = 10.0
_ASK_AGAIN_SECONDS = 0.02


def share_cores(processes: int) -> None:
    """Let linear algebra of this process take the cores that are its own where on each GPU of this host so many
    ``processes`` work."""
    _limit(_cores_of_a_gpu() // processes)


@contextmanager
def cores_of_all(processes: int, gpu: str) -> Iterator[None]:
    """Let linear algebra take the cores of all ``processes`` that work on a ``gpu``, named by what it is, but those
    that measuring needs. One process does at a time; whoever has waited for ten seconds goes on with its own share.
    Afterwards it has that again."""
    with _turn(knobs.cache_dir.get() / "cores" / f"{gpu}.lock") as ours:
        if ours:
            _limit(int(_cores_of_a_gpu() * (1 - _LEFT_ALONE)))
        try:
            yield
        finally:
            share_cores(processes)


@contextmanager
def _turn(path: Path) -> Iterator[bool]:
    """Whether a lock was free, or became so in time; where there can be no such file it never is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield False
        return
    try:
        yield _locked(handle)
    finally:
        os.close(handle)  # and with it the lock


def _locked(handle: int) -> bool:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_ASK_AGAIN_SECONDS)
        except OSError:  # a file system without locks
            return False


def _cores_of_a_gpu() -> int:
    return len(os.sched_getaffinity(0)) // max(1, cuda_device_count())


def _limit(threads: int) -> None:
    from threadpoolctl import threadpool_limits  # lazy: only what measures on a GPU needs it

    threadpool_limits(max(1, threads), user_api="blas")
