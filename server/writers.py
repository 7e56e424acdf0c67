"""Requests that may write are fewer at a time than the threads that answer requests.

SQLite has one writer, and each who waits for it holds a thread for up to 15 s: where all of them did, as behind a
backup or another program that holds the file, nobody could read, though readers wait for no writer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import CapacityLimiter, move_on_after

from .problems import HttpProblem

#: At a time. Starlette answers in 40 threads; ten of them at most compile, which are among the writers.
PLACES = 20
#: How long a request waits for a place, in seconds; it holds no thread meanwhile.
PATIENCE_S = 15.0


class Writers:
    """The places of one application."""

    def __init__(self) -> None:
        self._limiter: CapacityLimiter | None = None

    @property
    def limiter(self) -> CapacityLimiter:
        """Made in the event loop that uses it."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(PLACES)
        return self._limiter

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place while the block runs.

        Raises:
            HttpProblem: 503, none was free in time.
        """
        owner = object()  # a task may have several
        with move_on_after(PATIENCE_S) as patience:
            await self.limiter.acquire_on_behalf_of(owner)
        if patience.cancelled_caught:
            raise HttpProblem(
                503,
                "database-busy",
                "the database is written to by others, and went on for too long",
                hint="try again",
                headers={"Retry-After": "5"},
            )
        try:
            yield
        finally:
            self.limiter.release_on_behalf_of(owner)
