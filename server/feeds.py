"""The new events of running jobs, read once for all streams of this process.

A stream first reads by itself what happened before it came. From then on it takes what its job's feed has read, already
in the form in which it is sent. One that is too slow for what the feed keeps reads by itself again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from anyio import to_thread

from .signals import JobSignals
from .store import Job, ServiceStore, StoredEvent

# Another server process may write events without waking our feeds.
_POLL_S = 1.0
# Events that come together are read together: nobody sees a twentieth of a second, and each reading wakes all streams.
_GATHER_S = 0.05
_BATCH = 200
# Beyond these a stream reads by itself.
_MOST_KEPT = 1000
# Streams that are woken before others get their turn: five hundred at once kept every request waiting.
_WOKEN_TOGETHER = 16
# Streams mostly stand at the same place; each that comes from elsewhere would add a copy of all that follows it.
_MOST_JOINED = 8


def read_events(store: ServiceStore, job_id: str, after: int) -> tuple[Job, list[StoredEvent]]:
    """A job and the next of its events above ``after``, in order; a final job without any has none left."""
    with store.read() as tx:
        # The job first: if it is final here, then its last event is in what is read next.
        return tx.jobs.get(job_id), tx.events.page(job_id, after=after, limit=_BATCH)


def format_event(event: StoredEvent) -> bytes:
    """One event in the stream format. ``body`` is JSON without line breaks."""
    return f"id: {event.id}\nevent: {event.kind}\ndata: {event.body}\n\n".encode()


@dataclass(slots=True)
class Feed:
    """Events ``first`` to ``last`` of a job, whose ids count up one by one. ``ended``: no more will come.
    ``failed``: they could not be read."""

    first: int
    ended: bool = False
    failed: Exception | None = None
    streams: int = 0
    _kept: list[bytes] = field(default_factory=list)
    _joined: dict[int, bytes] = field(default_factory=dict)
    _waiting: dict[asyncio.Future[None], None] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The id of the newest event that was read, or of the one before the first."""
        return self.first + len(self._kept) - 1

    def since(self, after: int) -> bytes:
        """Everything that is kept above ``after``, which is ``first - 1`` at least."""
        if after not in self._joined:
            if len(self._joined) >= _MOST_JOINED:
                self._joined.clear()
            self._joined[after] = b"".join(self._kept[after - self.first + 1 :])
        return self._joined[after]

    async def wait(self, seconds: float) -> None:
        """Return when there is more, or when the time is up."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting[woken] = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await woken
        finally:
            self._waiting.pop(woken, None)

    def add(self, events: list[StoredEvent]) -> None:
        """Add the events after the last one. Streams see them when they are woken."""
        self._kept += map(format_event, events)
        beyond = max(0, len(self._kept) - _MOST_KEPT)
        del self._kept[:beyond]
        self.first += beyond
        self._joined.clear()

    async def wake(self) -> None:
        """Let all streams look, some after the other."""
        for number, woken in enumerate(list(self._waiting)):
            if number and number % _WOKEN_TOGETHER == 0:
                await asyncio.sleep(0)
            if not woken.done():
                woken.set_result(None)


class Feeds:
    """The feeds of the jobs that somebody follows."""

    def __init__(self, store: ServiceStore, signals: JobSignals) -> None:
        self._store = store
        self._signals = signals
        self._feeds: dict[tuple[asyncio.AbstractEventLoop, str], tuple[Feed, asyncio.Task[None]]] = {}
        self._stopping = Feed(1)  # without events: it ends when the server does

    @asynccontextmanager
    async def follow(self, job: Job) -> AsyncIterator[Feed]:
        """The job's feed; it begins after ``job.last_event`` if nobody else follows the job."""
        key = (asyncio.get_running_loop(), job.id)
        if key not in self._feeds:
            made = Feed(job.last_event + 1, ended=self._stopping.ended)
            self._feeds[key] = made, asyncio.create_task(self._run(job.id, made))
        feed, task = self._feeds[key]
        feed.streams += 1
        try:
            yield feed
        finally:
            feed.streams -= 1
            if not feed.streams:
                task.cancel()
                del self._feeds[key]

    async def sleep(self, seconds: float) -> bool:
        """Whether a stream is to go on after so long; at once when it is not, because the server stops."""
        if not self._stopping.ended:
            await self._stopping.wait(seconds)
        return not self._stopping.ended

    async def stop(self) -> None:
        """End all streams: the server stops."""
        for feed in (self._stopping, *(feed for feed, _ in self._feeds.values())):
            feed.ended = True
            await feed.wake()

    async def _run(self, job_id: str, feed: Feed) -> None:
        try:
            with self._signals.listen(job_id) as notified:
                while not feed.ended:
                    notified.clear()
                    job, events = await to_thread.run_sync(read_events, self._store, job_id, feed.last)
                    if events:
                        feed.add(events)
                        await feed.wake()
                    elif job.state.is_final:
                        feed.ended = True
                        await feed.wake()
                    else:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(_POLL_S):
                                await notified.wait()
                        await asyncio.sleep(_GATHER_S)
        except Exception as error:  # noqa: BLE001 - raised by every stream
            feed.failed = error
            await feed.wake()
