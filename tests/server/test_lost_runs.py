"""Runs that are lost, stopped or silent: attempts, leases, and what a dispatcher makes of their jobs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from store_rows import stored

from deuteron.server import Settings
from deuteron.server.dispatch.leases import LeaseClock
from deuteron.server.dispatch.supervisor import DaskDispatcher
from deuteron.server.store import JobState, NewJob


def test_a_lost_run_costs_an_attempt_and_a_stopped_one_does_not(service) -> None:
    context, job_id = service
    for attempt in (1, 2):
        context.ingest.claim(job_id, claim_id=f"t.{attempt}", worker="w")
        job = context.ingest.release(job_id, reason="gone", claim_id=f"t.{attempt}")
        assert (job.state, job.attempts) == (JobState.QUEUED, attempt)
    for again in range(3):
        context.ingest.claim(job_id, claim_id=f"r.{again}", worker="w")
        job = context.ingest.release(job_id, reason="stopped", refund=True)
        assert (job.state, job.attempts) == (JobState.QUEUED, 2)
    context.ingest.claim(job_id, claim_id="t.3", worker="w")
    assert context.ingest.release(job_id, reason="gone", claim_id="t.2").state is JobState.RUNNING
    job = context.ingest.release(job_id, reason="gone", claim_id="t.3")
    assert (job.state, job.attempts) == (JobState.FAILED, 3)
    assert "lost 3 times" in str(job.error)


def test_a_job_is_given_back_by_the_run_that_has_it(
    service, settings: Settings, open_client: Callable[..., TestClient]
) -> None:
    context, job_id = service
    client, path = open_client(settings), f"/v1/worker/jobs/{job_id}/release"
    context.ingest.claim(job_id, claim_id="t.1", worker="w")
    assert client.post(path, json={"claim_id": "t.2"}).status_code == 204
    assert stored(context, job_id).state is JobState.RUNNING
    assert [client.post(path, json={"claim_id": "t.1"}).status_code for _ in "ab"] == [204, 204]
    job = stored(context, job_id)
    assert (job.state, job.attempts, job.worker) == (JobState.QUEUED, 0, None)
    missing = client.post("/v1/worker/jobs/nothing/release", json={"claim_id": "t.1"})
    assert missing.status_code == 404


def test_a_cancelled_job_whose_run_is_lost_is_not_queued_again(service) -> None:
    context, job_id = service
    context.ingest.claim(job_id, claim_id="t.1", worker="w")
    assert context.ingest.cancel(job_id).state is JobState.RUNNING
    assert context.ingest.heartbeat(job_id, claim_id="t.1").cancel
    assert context.ingest.release(job_id, reason="gone").state is JobState.CANCELLED


def test_leases_expire_when_they_are_over(service) -> None:
    context, job_id = service
    dispatcher = DaskDispatcher(context.settings, context.store, context.ingest, "token")
    context.ingest.claim(job_id, claim_id="t.1", worker="w")
    dispatcher._expire_leases()
    assert stored(context, job_id).state is JobState.RUNNING
    with context.store.write() as tx:
        assert tx.jobs.renew(job_id, claim_id="t.1", lease=timedelta(seconds=-1))
    dispatcher._expire_leases()
    assert stored(context, job_id).state is JobState.RUNNING, "this server has just begun to listen"
    dispatcher._patience._judges_at = 0.0
    dispatcher._expire_leases()
    assert stored(context, job_id).state is JobState.QUEUED


def test_silence_counts_only_while_somebody_listened() -> None:
    wall, steady = 1000.0, 50.0
    patience = LeaseClock(30, lambda: wall, lambda: steady)

    def pass_by(seconds: float, *, awake: bool = True) -> bool:
        nonlocal wall, steady
        wall += seconds
        steady += seconds if awake else 0.0
        return patience.judges()

    assert not pass_by(10) and not pass_by(10) and pass_by(10)
    assert not pass_by(3600, awake=False), "the machine slept, or somebody set the clock"
    assert not pass_by(10) and not pass_by(10) and pass_by(10)
    assert not pass_by(3600), "this process was stopped"
    assert not pass_by(14) and not pass_by(14) and pass_by(2)
    assert not pass_by(20) and not pass_by(14) and not pass_by(14) and pass_by(2), "nobody asked for most of a lease"
    assert pass_by(-7200, awake=False), "leases are longer then, which harms nobody"


class _Future:
    """What the supervisor asks of one of Dask's."""

    def __init__(self, status: str) -> None:
        self.status = status

    def done(self) -> bool:
        return True

    def exception(self) -> Exception:
        return RuntimeError("KilledWorker")

    def result(self) -> str:
        return "delivered"


@pytest.mark.parametrize(
    ("status", "waiting", "running"),
    [
        ("cancelled", JobState.QUEUED, JobState.RUNNING),
        ("lost", JobState.QUEUED, JobState.RUNNING),
        ("error", JobState.FAILED, JobState.QUEUED),
    ],
)
def test_what_a_lost_scheduler_had_is_not_what_an_engine_gave_up(
    service: Any, status: str, waiting: JobState, running: JobState
) -> None:
    """A dying scheduler takes all futures with it: a job that it had queued failed, one that it ran began again."""
    from deuteron.server.dispatch.engine import Dispatched

    context, queued = service
    with context.store.write() as tx:
        begun = tx.jobs.add(a_second(tx.jobs.get(queued))).id
    context.ingest.claim(begun, claim_id="ticket.a", worker="w")
    dispatcher = DaskDispatcher(context.settings, context.store, context.ingest, "")
    for job_id in (queued, begun):
        dispatcher._dispatched[job_id] = Dispatched("ticket", _Future(status))
    dispatcher._reap()
    assert (stored(context, queued).state, stored(context, begun).state) == (waiting, running)
    assert dispatcher._dispatched == {}, "a queued job has to be handed over again"


def a_second(job: Any) -> NewJob:
    return NewJob(str(uuid.uuid4()), job.kernel_name, job.kernel_hash, job.device, job.spec, job.trials_total)


def test_a_database_that_is_away_does_not_end_the_dispatcher(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL was killed and came back; the thread had died of the first read without it, and no job ever began."""
    context, _ = service
    dispatcher = DaskDispatcher(context.settings, context.store, context.ingest, "")
    closed: list[str] = []

    class Engine:
        def close(self) -> None:
            closed.append("engine")

    def away() -> None:
        raise OperationalError("SELECT", {}, Exception("connection refused"))

    monkeypatch.setattr(context.store, "read", away)
    dispatcher._forget_engine(Engine())  # type: ignore[arg-type]
    assert closed == ["engine"]
    led: list[str] = []

    def lead(url: str) -> None:
        led.append(url)
        if len(led) == 2:
            dispatcher._closing.set()
        away()

    monkeypatch.setattr(dispatcher, "_lead", lead)
    monkeypatch.setattr("deuteron.server.dispatch.supervisor._STANDBY_S", 0.0)
    dispatcher._run("http://here")
    assert led == ["http://here"] * 2
