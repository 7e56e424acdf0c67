"""Streams of one job share what is read of it, and each has every event once."""

from __future__ import annotations

import asyncio
import itertools
import random
import tracemalloc
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from deuteron.server import feeds
from deuteron.server.api import events
from deuteron.server.feeds import Feed, Feeds
from deuteron.server.signals import JobSignals
from deuteron.server.store import JobState, StoredEvent


@dataclass
class Log:
    """A job and its events as a store has them; counts how often they are read."""

    job: Any
    reads: int = 0
    broken: bool = False

    def append(self, count: int, state: str = "running") -> None:
        last = self.job.last_event + count
        self.job = SimpleNamespace(id="j", state=JobState(state), last_event=last)

    def read(self, _store: object, _job_id: str, after: int) -> tuple[Any, list[StoredEvent]]:
        self.reads += 1
        if self.broken:
            raise OSError("the disk is gone")
        ids = range(after + 1, min(after + feeds._BATCH, self.job.last_event) + 1)
        return self.job, [StoredEvent("j", n, "e", f'{{"n":{n}}}', datetime.now(UTC)) for n in ids]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log(SimpleNamespace(id="j", state=JobState("running"), last_event=0))
    for module in (feeds, events):
        monkeypatch.setattr(module, "read_events", made.read)
    monkeypatch.setattr(feeds, "_GATHER_S", 0.001)
    return made


class Browser:
    """What a request is to a stream."""

    def __init__(self) -> None:
        self.gone = False

    async def is_disconnected(self) -> bool:
        return self.gone


async def read_stream(kept: Feeds, job: Any, after: int, pause: float = 0.0) -> list[int]:
    context = SimpleNamespace(feeds=kept, store=None, settings=SimpleNamespace(heartbeat_seconds=9.0))
    ids = []
    async for part in events._stream(Browser(), context, job, after):  # type: ignore[arg-type]
        ids += [int(line[4:]) for line in part.split(b"\n") if line.startswith(b"id: ")]
        await asyncio.sleep(pause)
    return ids


def test_streams_that_come_at_any_time_have_every_event_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some come late, some from the middle, some are too slow for what is kept."""
    monkeypatch.setattr(feeds, "_MOST_KEPT", 20)
    monkeypatch.setattr(feeds, "_BATCH", 7)
    choose = random.Random(0)

    async def scene() -> None:
        signals = JobSignals()
        kept = Feeds(None, signals)  # type: ignore[arg-type]
        log.append(30)
        streams = []
        for step in range(60):
            after = choose.choice([0, 0, log.job.last_event, choose.randrange(log.job.last_event + 1)])
            pause = choose.choice([0.0, 0.0, 0.02])
            streams.append((after, asyncio.create_task(read_stream(kept, log.job, after, pause))))
            log.append(choose.randrange(12), "succeeded" if step == 59 else "running")
            signals.notify("j")
            await asyncio.sleep(0.002)
        for after, stream in streams:
            assert await asyncio.wait_for(stream, 20) == list(range(after + 1, log.job.last_event + 1))
        assert kept._feeds == {} and signals._listening == {}

    asyncio.run(scene())


def test_many_streams_are_one_reader(log: Log) -> None:
    async def scene() -> None:
        signals = JobSignals()
        kept = Feeds(None, signals)  # type: ignore[arg-type]
        streams = [asyncio.create_task(read_stream(kept, log.job, 0)) for _ in range(200)]
        for step in range(10):
            await asyncio.sleep(0.01)
            log.append(3, "succeeded" if step == 9 else "running")
            signals.notify("j")
        assert set(map(len, await asyncio.gather(*streams))) == {30}

    asyncio.run(scene())
    assert log.reads < 60


def test_events_of_another_process_come_without_a_signal(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_POLL_S", 0.02)

    async def scene() -> None:
        stream = asyncio.create_task(read_stream(Feeds(None, JobSignals()), log.job, 0))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        log.append(2, "failed")
        assert await asyncio.wait_for(stream, 5) == [1, 2]

    asyncio.run(scene())


def test_what_cannot_be_read_ends_the_streams_and_the_next_ones_read_again(log: Log) -> None:
    async def scene() -> None:
        signals = JobSignals()
        kept = Feeds(None, signals)  # type: ignore[arg-type]
        streams = [asyncio.create_task(read_stream(kept, log.job, 0)) for _ in range(2)]
        await asyncio.sleep(0.02)
        log.broken = True
        signals.notify("j")
        for stream in streams:
            with pytest.raises(OSError, match="the disk is gone"):
                await asyncio.wait_for(stream, 5)
        log.broken = False
        log.append(1, "succeeded")
        assert await asyncio.wait_for(read_stream(kept, log.job, 0), 5) == [1]

    asyncio.run(scene())


def test_who_asks_for_events_to_come_waits_for_the_end(log: Log) -> None:
    async def scene() -> None:
        signals = JobSignals()
        stream = asyncio.create_task(read_stream(Feeds(None, signals), log.job, 5))  # type: ignore[arg-type]
        await asyncio.sleep(0.02)
        log.append(7, "cancelled")
        signals.notify("j")
        assert await asyncio.wait_for(stream, 5) == [6, 7]

    asyncio.run(scene())


def test_streams_from_many_places_do_not_add_up() -> None:
    feed = Feed(1)
    feed.add([StoredEvent("j", n, "e", "x" * 1000, datetime.now(UTC)) for n in range(1, 101)])
    tracemalloc.start()
    try:
        for after in [*range(100), *range(1000, 1100)]:
            assert feed.since(after).count(b"id: ") == max(0, 100 - after)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_others_have_their_turn_while_streams_are_woken() -> None:
    """A request takes some turns: each of them behind five hundred streams was a tenth of a second."""

    async def run() -> tuple[int, list[int]]:
        feed, woken_before_turn = Feed(1), []
        woken = 0

        async def stream() -> None:
            nonlocal woken
            await feed.wait(10)
            woken += 1

        async def request() -> None:
            while woken < 100:
                woken_before_turn.append(woken)
                await asyncio.sleep(0)

        streams = [asyncio.create_task(stream()) for _ in range(100)]
        await asyncio.sleep(0)
        asked = asyncio.create_task(request())
        await feed.wake()
        await asyncio.gather(asked, *streams)
        return woken, woken_before_turn

    woken, before_turns = asyncio.run(run())
    assert woken == 100
    assert max(b - a for a, b in itertools.pairwise(before_turns)) <= 32


def test_streams_that_nobody_wakes_leave_nothing() -> None:
    async def run() -> int:
        feed = Feed(1)
        await asyncio.gather(*(feed.wait(0.01) for _ in range(10)))
        return len(feed._waiting)

    assert asyncio.run(run()) == 0


def test_streams_end_when_the_server_does(log: Log) -> None:
    """Those that wait, those that pause and those that begin now, which have what there is."""

    async def scene() -> None:
        kept = Feeds(None, JobSignals())  # type: ignore[arg-type]
        log.append(3)
        waiting = asyncio.create_task(read_stream(kept, log.job, 0))
        pausing = asyncio.create_task(kept.sleep(60))
        assert await kept.sleep(0.05), "nobody stops"
        async with asyncio.timeout(10):
            await kept.stop()
            assert await waiting == [1, 2, 3]
            assert not await pausing and not await kept.sleep(60)
            assert await read_stream(kept, log.job, 1) == [2, 3]

    asyncio.run(scene())
