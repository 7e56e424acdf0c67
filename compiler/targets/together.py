"""Grids whose programs wait for each other, on targets that run each program on a thread of its own."""

from __future__ import annotations

from ..errors import LaunchError

#: Programs that run at the same time, at most: most of their threads wait on a machine's few cores.
MOST_AT_ONCE = 1024


def check_together(total: int, where: str) -> None:
    """Raise LaunchError where a cooperative grid has more programs than may run at the same time. ``where``: who would
    run them."""
    if total > MOST_AT_ONCE:
        raise LaunchError(
            f"launch_cooperative_grid=True runs all programs at the same time, the grid has {total}, and {where} has"
            f" threads for {MOST_AT_ONCE}",
            hint=f"launch {MOST_AT_ONCE} programs or fewer, which take several pieces of the work each",
        )


def too_few_threads(wanted: int, given: int) -> LaunchError:
    """What is said where the system does not let a process have the threads that a launch needs."""
    return LaunchError(
        f"the launch needs {wanted} threads, and the system gives this process {given}",
        hint="launch fewer programs, or raise the limit of threads (ulimit -u, pids.max)",
    )
