"""Waking the feeds of one process when a job gets a new event."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class JobSignals:
    """``notify`` may be called from any thread, ``listen`` only in an event loop.

    It is a hint, not a queue: a feed that wakes reads the database. Feeds also wake by themselves, because events may
    be written by another server process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening: defaultdict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)

    def notify(self, job_id: str) -> None:
        """Wake whoever listens to a job: something about it was written."""
        with self._lock:
            listening = list(self._listening.get(job_id, ()))
        for loop, event in listening:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    @contextmanager
    def listen(self, job_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job is notified, until the block is left. Who waits for it clears it."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._listening[job_id].add(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._listening[job_id].discard(entry)
                if not self._listening[job_id]:
                    del self._listening[job_id]
