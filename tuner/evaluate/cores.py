"""Which cores a process takes that prepares to measure beside others."""

from __future__ import annotations

import os

from deuteron.compiler.runtime.cuda.driver import cuda_device_count


def share_cores(processes: int) -> None:
    """Let linear algebra of this process take the cores that are its own where on each GPU of this host so many
    ``processes`` work.

    Threads of OpenBLAS wait for each other by spinning. With a thread for each of 16 cores six processes came to 425
    GFLOP/s together, with three threads each to 797, a process alone to 575.
    """
    from threadpoolctl import threadpool_limits  # lazy: only what measures on a GPU needs it

    threadpool_limits(
        max(1, len(os.sched_getaffinity(0)) // (processes * max(1, cuda_device_count()))), user_api="blas"
    )
