"""What a worker process does with its job when it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .reporter import Reporter

# A keeper kills its process after four seconds, in which Dask ends it, too.
_PATIENCE_S = 1.5


class Handover:
    """Knows the run of this process, one at a time, and gives its job back when the process stops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Reporter | None = None
        self._stopping = threading.Event()

    @contextmanager
    def of(self, reporter: Reporter) -> Iterator[None]:
        """The block measures. A job that was claimed when the process was stopping already goes back at once."""
        with self._lock:
            self._current, stopping = reporter, self._stopping.is_set()
        if stopping:
            reporter.give_back(_PATIENCE_S)
        try:
            yield
        finally:
            with self._lock:
                self._current = None

    def wait(self, seconds: float) -> None:
        """Return after so long, or when the process stops."""
        self._stopping.wait(seconds)

    def stop(self) -> None:
        """Give the job back, if there is one, and every one that comes."""
        with self._lock:
            self._stopping.set()
            current = self._current
        if current is not None:
            current.give_back(_PATIENCE_S)
