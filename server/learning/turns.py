"""When it is a kernel's turn to be trained: not while its jobs still come in, and not too late either."""

from __future__ import annotations

import threading
from dataclasses import dataclass

#: No job of the kernel has ended for so long: those of a batch are trained from together.
QUIET_S = 10.0
#: Since the first job that was not trained from: a fleet that is never quiet is waited for no longer.
LATEST_S = 300.0
#: A kernel rests for so many times as long as its last training took, so that training takes a tenth of a core at most.
REST = 9.0


@dataclass(slots=True)
class _Waiting:
    first: float
    last: float

    @property
    def due(self) -> float:
        return min(self.last + QUIET_S, self.first + LATEST_S)


class Turns:
    """Kernels with jobs that ended, by hash. Times are of one monotonic clock, in seconds. Safe to share between
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._rests: dict[str, float] = {}

    def note(self, kernel_hash: str, now: float) -> None:
        """A job of the kernel ended."""
        with self._lock:
            self._waiting.setdefault(kernel_hash, _Waiting(now, now)).last = now

    def take(self, now: float) -> str | None:
        """The kernel whose turn it is, the longest due first; it waits no more."""
        with self._lock:
            due, kernel_hash = self._next()
            if kernel_hash is None or due > now:
                return None
            del self._waiting[kernel_hash]
            self._rests.pop(kernel_hash, None)
            return kernel_hash

    def rest(self, kernel_hash: str, now: float, took: float) -> None:
        """A training of the kernel ended that took so many seconds."""
        with self._lock:
            self._rests = {kernel: until for kernel, until in self._rests.items() if until > now}
            self._rests[kernel_hash] = now + REST * took

    def seconds_left(self, now: float) -> float | None:
        """Until the next turn; None where nothing waits."""
        with self._lock:
            due, kernel_hash = self._next()
        return None if kernel_hash is None else max(0.0, due - now)

    def _next(self) -> tuple[float, str | None]:
        turns = ((max(one.due, self._rests.get(kernel, one.due)), kernel) for kernel, one in self._waiting.items())
        return min(turns, default=(0.0, None))
