"""Which cores processes take that measure beside others, or prepare to: for linear algebra, and before what compiles.

Threads of OpenBLAS wait for each other by spinning. With a thread for each of 16 cores six processes came to 425
GFLOP/s together, with three threads each to 797, a process alone to 575. So each process has its part of the cores, and
one after the other those of all: the first ones to wait for an expected result have it sooner.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from deuteron.compiler import knobs
from deuteron.compiler.runtime.cuda.driver import cuda_device_count

from .turns import turn

#: Cores that processes which measure, and their parents, have for themselves, as a part of all.
_LEFT_ALONE = 1 / 4
_PATIENCE_SECONDS = 10.0
#: The niceness of what compiles for GPUs, at least: a third of the share of what has 0.
_COMPILING = 5


def share_cores(processes: int) -> None:
    """Let linear algebra of this process take the cores that are its own where on each GPU of this host so many
    ``processes`` work."""
    _limit(_cores_of_a_gpu() // processes)


@contextmanager
def cores_of_all(processes: int, gpu: str) -> Iterator[None]:
    """Let linear algebra take the cores of all ``processes`` that work on a ``gpu``, named by what it is, but those
    that measuring needs. One process does at a time; whoever has waited for ten seconds goes on with its own share.
    Afterwards it has that again."""
    with turn(knobs.cache_dir.get() / "cores" / f"{gpu}.lock", _PATIENCE_SECONDS) as ours:
        if ours:
            _limit(int(_cores_of_a_gpu() * (1 - _LEFT_ALONE)))
        try:
            yield
        finally:
            share_cores(processes)


def give_way() -> None:
    """Let this process, which compiles, take cores that no others want: for each GPU that is measured on there are as
    many of it as the host has cores, and the device waits for the processes that measure."""
    with suppress(OSError):  # a system that has no priorities
        os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), _COMPILING))


def _cores_of_a_gpu() -> int:
    return len(os.sched_getaffinity(0)) // max(1, cuda_device_count())


def _limit(threads: int) -> None:
    from threadpoolctl import threadpool_limits  # lazy: only what measures on a GPU needs it

    threadpool_limits(max(1, threads), user_api="blas")
