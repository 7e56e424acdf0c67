"""Waking the event streams of one process when a job gets a new event."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict


class JobSignals:
    """``notify`` may be called from any thread, ``wait`` only in an event loop.

    It is a hint, not a queue: a stream that wakes reads the database. Streams also wake by themselves,
    because events may be written by another server process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: defaultdict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)

    def notify(self, job_id: str) -> None:
        """Wake the streams of a job: something about it was written."""
        with self._lock:
            waiting = list(self._waiting.get(job_id, ()))
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def wait(self, job_id: str, timeout_s: float) -> bool:
        """Whether the job was notified before the time was up."""
        event = asyncio.Event()
        entry = (asyncio.get_running_loop(), event)
        with self._lock:
            self._waiting[job_id].add(entry)
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting[job_id].discard(entry)
                if not self._waiting[job_id]:
                    del self._waiting[job_id]
        return True
