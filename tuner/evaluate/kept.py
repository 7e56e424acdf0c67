"""Processes that one job leaves to the next on the same device.

A job of two small shapes takes as long to make three contexts on a GPU as to measure, and all processes of a host make
and remove theirs one after the other, whatever their GPU: workers beside each other wait for each other there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from .nursery import shared_nursery, surroundings
from .processes import Processes

#: How long processes wait for another job. Between two jobs of a worker passes a tenth of a second.
KEPT_SECONDS = 5.0
#: And how many jobs they serve: what a process has loaded onto a GPU it never unloads.
MOST_JOBS = 50


@dataclass(frozen=True)
class _Kept:
    """``found``: the device, and what processes took over that were started there."""

    processes: Processes
    found: object
    timer: threading.Timer


class KeptProcesses:
    """Lends the processes of the job before, or new ones that ``make`` makes. Threads may share it: what one uses no
    other one gets."""

    def __init__(self, make: Callable[[], Processes], seconds: float = KEPT_SECONDS) -> None:
        self._make, self._seconds = make, seconds
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    @contextmanager
    def lent(self, device: str) -> Iterator[Processes]:
        """Processes for one job on a GPU; they are ended if it raises, and soon after it unless another one follows."""
        found = _found(device)
        processes = self._take(found) or self._make()
        try:
            processes.begin_job(device)
            yield processes
        except BaseException:
            processes.close()
            raise
        if found is None or processes.jobs >= MOST_JOBS:
            processes.close()
            return
        try:
            processes.end_job(device)
        except OSError:  # no descriptors are left, or no disk
            processes.close()
            return
        self._keep(processes, found)

    def close(self) -> None:
        """End what is kept."""
        self._take(None)

    def _take(self, found: object) -> Processes | None:
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None:
            return None
        kept.timer.cancel()
        if kept.found == found and found is not None:
            return kept.processes
        kept.processes.close()
        return None

    def _keep(self, processes: Processes, found: object) -> None:
        timer = threading.Timer(self._seconds, self._end_unless_lent, (processes,))
        timer.daemon = True  # they end with this process
        with self._lock:
            before, self._kept = self._kept, _Kept(processes, found, timer)
        timer.start()
        if before is not None:
            before.timer.cancel()
            before.processes.close()

    def _end_unless_lent(self, processes: Processes) -> None:
        """No job has followed in time; or one just did, where the timer is late."""
        with self._lock:
            if self._kept is None or self._kept.processes is not processes:
                return
            self._kept = None
        processes.close()


def _found(device: str) -> object | None:
    """What must be as it was for processes to serve another job; None where that is not known."""
    try:
        return device, surroundings()
    except OSError:
        return None


@cache
def kept_processes() -> KeptProcesses:
    """Those of this process."""
    return KeptProcesses(lambda: Processes(nursery=shared_nursery()))
