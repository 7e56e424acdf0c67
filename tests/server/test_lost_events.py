"""A database that has lost what it acknowledged: a backup that is older, a replica that lagged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from deuteron.server import Settings
from deuteron.server.backup import back_up, restore
from deuteron.server.context import ServiceContext
from deuteron.server.dispatch.ingest import Delivery, Ingest, Receipt
from deuteron.server.dispatch.link import Link
from deuteron.server.dispatch.reporter import Reporter
from deuteron.server.dispatch.spool import Spool
from deuteron.server.store import JobState, ServiceStore

JOB = {"workload": "softmax", "shapes": [{"M": 64, "N": 64}], "budget": {"trials": 5}}
RUN = "ticket.run"
Events = Callable[..., list[dict[str, Any]]]


@dataclass
class MovingLink:
    """The way to a service whose database may be another one at the next delivery."""

    ingest: Ingest

    def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
        return self.ingest.deliver(job_id, claim_id, events, after=after)

    def heartbeat(self, job_id: str, claim_id: str) -> Receipt:
        return self.ingest.heartbeat(job_id, claim_id=claim_id)


@pytest.fixture
def service(settings: Settings, open_client: Callable[..., TestClient]) -> tuple[ServiceContext, str]:
    """The parts of a service, and a job of it that a run has."""
    client = open_client(settings)
    context, job_id = client.app.state.context, client.post("/v1/jobs", json=JOB).json()["id"]  # type: ignore[attr-defined]
    context.ingest.claim(job_id, claim_id=RUN, worker="w")
    return context, job_id


@pytest.fixture
def open_ingest(service: tuple[ServiceContext, str]) -> Iterator[Callable[[str], Ingest]]:
    """What writes to another database of the service."""
    opened: list[ServiceStore] = []

    def open_one(url: str) -> Ingest:
        opened.append(ServiceStore.open(url))
        return replace(service[0].ingest, store=opened[-1])

    yield open_one
    for store in opened:
        store.close()


@contextmanager
def half_told(
    service: tuple[ServiceContext, str], events: list[dict[str, Any]], tmp_path: Path
) -> Iterator[tuple[Reporter, MovingLink, Spool]]:
    """A run whose first two events are acknowledged."""
    context, job_id = service
    link, spool = MovingLink(context.ingest), Spool(tmp_path / "spool", job_id, RUN)
    with Reporter(cast(Link, link), spool, job_id, RUN) as reporter:
        for event in events[:2]:
            reporter.emit(event)
        assert reporter.drain(30)
        yield reporter, link, spool


def found(ingest: Ingest, job_id: str) -> tuple[JobState, list[str], int]:
    """State, trials and records of a job."""
    with ingest.store.read() as tx:
        trials = [trial.trial_id for trial in tx.trials.page(job_id)]
        return tx.jobs.get(job_id).state, trials, len(tx.configs.page(limit=10))


def told(events: list[dict[str, Any]]) -> list[str]:
    return [event["trial"]["id"] for event in events if event["kind"] == "trial_finished"]


def test_a_run_begins_again_where_a_replica_lagged(
    service: Any, open_ingest: Callable[[str], Ingest], tune_events: Events, tmp_path: Path
) -> None:
    """Its job succeeded with shapes missing: what was acknowledged before is in no other database."""
    (context, job_id), (*events, end) = service, tune_events(trials=4)
    with half_told(service, events, tmp_path) as (reporter, link, spool):
        with closing(sqlite3.connect(context.settings.home / "deuteron.db")) as database:
            database.execute("VACUUM INTO ?", (str(tmp_path / "replica.db"),))
        for event in events[2:-1]:
            reporter.emit(event)
        assert reporter.drain(30) and found(context.ingest, job_id)[1] == told(events)
        link.ingest = open_ingest(f"sqlite:///{tmp_path / 'replica.db'}")
        reporter.emit(events[-1])
        assert reporter.drain(30) and not reporter.stop_requested
        reporter.emit(end)
        assert reporter.drain(30)
    assert found(link.ingest, job_id) == (JobState.SUCCEEDED, told(events), 1)
    assert not spool.path.exists()


def test_no_run_goes_on_from_a_backup_but_its_trials_are_kept(
    service: Any, open_ingest: Callable[[str], Ingest], tune_events: Events, tmp_path: Path
) -> None:
    (context, job_id), (*events, end) = service, tune_events(trials=4)
    with half_told(service, events, tmp_path) as (reporter, link, _):
        back_up(context.settings, tmp_path / "made.zip")
        for event in events[2:]:
            reporter.emit(event)
        assert reporter.drain(30)
        second = Settings(home=tmp_path / "second")
        restore(second, tmp_path / "made.zip")
        link.ingest = open_ingest(second.database_url)
        assert found(link.ingest, job_id) == (JobState.QUEUED, told(events[:2]), 0)
        reporter.emit(end)
        assert reporter.drain(30) and reporter.stop_requested
    assert found(link.ingest, job_id) == (JobState.QUEUED, told(events), 1)
    with link.ingest.store.read() as tx:
        assert tx.jobs.get(job_id).attempts == 0, "the run is not to blame"
        assert "a backup was restored" in tx.events.of_kind(job_id, "job_state")[-1]
    next_run = link.ingest.claim(job_id, claim_id="next.run", worker="w")
    assert [trial.trial_id for trial in next_run.finished] == told(events)


def test_an_event_that_is_refused_is_not_asked_for_again(service: Any, tune_events: Events, tmp_path: Path) -> None:
    """What follows it names the last one that was stored."""
    (context, job_id), (started, trial, *_) = service, tune_events(trials=1)
    link, spool = MovingLink(context.ingest), Spool(tmp_path / "spool", job_id, RUN)
    deliveries = [Delivery(1, started), Delivery(3, trial)]
    spool.append(started)
    spool.acknowledge(1)
    spool.append({"kind": "no such event"})
    spool.drop(1)
    spool.append(trial)
    assert context.ingest.deliver(job_id, RUN, deliveries[:1]) == Receipt(proceed=True, cancel=False)
    assert spool.unsent() == deliveries[1:] and spool.acknowledged == 1
    assert link.deliver(job_id, RUN, deliveries[1:], after=spool.acknowledged) == Receipt(proceed=True, cancel=False)
    assert link.deliver(job_id, RUN, [Delivery(9, trial)], after=8).missing
    spool.acknowledge(1)
    spool.close()


def test_events_that_never_reached_the_disk_are_sent_again_while_they_are_there(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "job", RUN)
    for number in range(3):
        spool.append({"kind": str(number)})
    spool.acknowledge(2)
    spool.path.write_bytes(spool.path.read_bytes()[:-1])  # the third was cut off
    spool.rewind()
    assert [item.sequence for item in spool.unsent()] == [1, 2, 3] and spool.acknowledged == 0
    spool.acknowledge(3)
    spool.close()
