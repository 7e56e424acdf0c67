"""What a run measures on its way to the server: a full disk, a slow server, one that does not let it in."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from link_stand_ins import RefusingLink, SlowLink

from deuteron.server.dispatch import run as run_module
from deuteron.server.dispatch.handover import Handover
from deuteron.server.dispatch.ingest import Delivery, Receipt
from deuteron.server.dispatch.link import Link
from deuteron.server.dispatch.reporter import MOST_UNSENT, Reporter
from deuteron.server.dispatch.run import Bench
from deuteron.server.dispatch.spool import Spool
from deuteron.tuner.event_log import EventLog
from deuteron.tuner.http import ServiceError


def test_a_full_disk_does_not_throw_away_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spool cannot be written; the server, perhaps of another machine, gets the events all the same."""

    class TakingLink:
        took: ClassVar[list[int]] = []

        def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
            self.took.extend(item.sequence for item in events)
            return Receipt(True, False)

    def full(log: EventLog, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool = Spool(tmp_path / "a new" / "home", "job", "ticket.run")
    with Reporter(cast(Link, TakingLink()), spool, "job", "ticket.run") as reporter:
        reporter.emit({"kind": "one"})
        monkeypatch.setattr(EventLog, "append", full)
        reporter.emit({"kind": "two"})
        assert reporter.drain(30)
    assert TakingLink.took == [1, 2] and not spool.path.exists()


def test_the_device_waits_for_the_disk_and_not_for_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the server cannot keep up, or the disk is full."""
    monkeypatch.setattr("deuteron.server.dispatch.reporter._ACKNOWLEDGE_WAIT_S", 30.0)
    link, spool = SlowLink(), Spool(tmp_path, "job", "ticket.run")
    with Reporter(cast(Link, link), spool, "job", "ticket.run") as reporter:
        for number in range(MOST_UNSENT):
            reporter.emit({"kind": str(number)})
        assert not link.took and len(spool.path.read_bytes().splitlines()) == MOST_UNSENT
        waits_for(link, lambda: reporter.emit({"kind": "late"}))
        assert reporter.drain(30)
        monkeypatch.setattr(Spool, "append", lambda spool, event: spool._unsent.append(Delivery(99, event)))
        waits_for(link, lambda: reporter.emit({"kind": "unwritten"}))
        assert link.took == [*range(1, MOST_UNSENT + 2), 99]


def test_events_go_to_the_server_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first at once, others together, and all of them as soon as somebody waits for them."""
    monkeypatch.setattr("deuteron.server.dispatch.reporter.DELIVERY_PAUSE_S", 20.0)
    deliveries: list[list[int]] = []

    class Link(SlowLink):
        def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
            deliveries.append([item.sequence for item in events])
            return super().deliver(job_id, claim_id, events)

    link, spool = Link(), Spool(tmp_path, "job", "ticket.run")
    link.answers.set()
    began = time.monotonic()
    with Reporter(cast("Any", link), spool, "job", "ticket.run") as reporter:
        reporter.emit({"kind": "1"})
        assert reporter.drain(10) and deliveries == [[1]]
        for number in range(2, 12):
            reporter.emit({"kind": str(number)})
            time.sleep(0.01)
        assert deliveries == [[1]]
        assert reporter.drain(10) and deliveries == [[1], [*range(2, 12)]]
        for number in range(12, 14 + MOST_UNSENT):
            reporter.emit({"kind": str(number)})
        assert len(deliveries) >= 3, "no more than so many are under way"
    assert time.monotonic() - began < 10


def waits_for(link: SlowLink, work: Callable[[], None]) -> None:
    """Check that ``work`` does not end before the server answers, and then does."""
    link.answers.clear()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    link.answers.set()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize(("status", "stays"), [(401, True), (403, True), (404, False), (422, False)])
def test_a_refused_worker_keeps_what_it_measured(tmp_path: Path, status: int, stays: bool) -> None:
    spool = Spool(tmp_path, "job", "ticket.run")
    with Reporter(cast(Link, RefusingLink(status)), spool, "job", "ticket.run") as reporter:
        reporter.emit({"kind": "trial_finished"})
        began = time.monotonic()
        assert reporter.drain(60) is not stays
        assert time.monotonic() - began < 30 and reporter.stop_requested
    assert spool.path.exists() is stays


@pytest.mark.parametrize(("status", "waits"), [(401, True), (403, True), (409, False)])
def test_a_worker_that_is_not_let_in_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, waits: bool
) -> None:
    """Its token has expired: the scheduler gave it the same job 25 times a second. One that stops waits no longer."""

    def refuse(*_: object, **__: object) -> None:
        raise ServiceError("the token has expired", status=status, problem={})

    monkeypatch.setattr(Link, "claim", refuse)
    monkeypatch.setattr(run_module, "_NOT_LET_IN_S", 60.0)
    handover = Handover()
    bench = Bench("http://127.0.0.1:1", "", "cpu", tmp_path, "x:y", tmp_path)
    outcomes: list[str] = []
    thread = threading.Thread(target=lambda: outcomes.append(run_module.measure(bench, "job", "ticket", handover)))
    thread.start()
    thread.join(5 if not waits else 1)
    assert thread.is_alive() is waits
    handover.stop()
    thread.join(30)
    assert outcomes and outcomes[0].startswith("refused")
