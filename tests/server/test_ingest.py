"""What makes kill -9 harmless, without a dispatcher: repeated deliveries, lost runs, attempts, leases and spools."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from deuteron.server import Settings
from deuteron.server.context import ServiceContext
from deuteron.server.dispatch import run as run_module
from deuteron.server.dispatch.handover import Handover
from deuteron.server.dispatch.ingest import Delivery, Receipt
from deuteron.server.dispatch.leases import LeaseClock
from deuteron.server.dispatch.link import Assignment, Link
from deuteron.server.dispatch.reporter import MOST_UNSENT, Reporter
from deuteron.server.dispatch.run import Bench, deliver_leftovers, forget_dead_runs
from deuteron.server.dispatch.spool import KEPT_S, Spool, leftovers
from deuteron.server.dispatch.supervisor import DaskDispatcher
from deuteron.server.files import remove_parts
from deuteron.server.store import Conflict, JobState, NewJob, NotFound, TooLong
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.event_log import EventLog
from deuteron.tuner.events import JobCancelled, JobFailed, JobFinished, JobStarted, TuneEvent
from deuteron.tuner.http import ServiceError

JOB = {"workload": "softmax", "shapes": [{"M": 64, "N": 64}], "budget": {"trials": 5}}
Events = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def service(settings: Settings, open_client: Callable[..., TestClient]) -> tuple[ServiceContext, str]:
    """The parts of a service, and a job of it."""
    client = open_client(replace(settings, max_attempts=3))
    return client.app.state.context, client.post("/v1/jobs", json=JOB).json()["id"]  # type: ignore[attr-defined]


def deliveries(events: list[dict[str, Any]], first: int = 1) -> list[Delivery]:
    return [Delivery(first + place, event) for place, event in enumerate(events)]


def stored(context: ServiceContext, job_id: str) -> Any:
    with context.store.read() as tx:
        return tx.jobs.get(job_id)


def kinds(context: ServiceContext, job_id: str) -> list[str]:
    with context.store.read() as tx:
        return [event.kind for event in tx.events.page(job_id)]


def test_what_was_delivered_is_not_applied_again(service, tune_events: Events) -> None:
    context, job_id = service
    context.ingest.claim(job_id, claim_id="t.a", worker="w")
    events = tune_events(trials=2)
    context.ingest.deliver(job_id, claim_id="t.a", events=deliveries(events[:3]))
    once = kinds(context, job_id)
    context.ingest.deliver(job_id, claim_id="t.a", events=deliveries(events[:3]))
    assert kinds(context, job_id) == once
    context.ingest.deliver(job_id, claim_id="t.a", events=deliveries(events[1:4], first=2))
    assert kinds(context, job_id) == [*once, events[3]["kind"]]
    # Another run counts its lines from 1 again.
    context.ingest.claim(job_id, claim_id="t.b", worker="w")
    before = len(kinds(context, job_id))
    context.ingest.deliver(job_id, claim_id="t.b", events=deliveries(events[:1]))
    assert len(kinds(context, job_id)) == before + 1


@pytest.mark.parametrize("seed", range(3))
def test_trials_are_stored_once_however_they_are_delivered(service, tune_events: Events, seed: int) -> None:
    """In any pieces, again and by several runs: trials, counts, events and metrics are those of a dict of trials."""
    context, job_id = service
    rng = random.Random(seed)
    started, *events = tune_events(trials=12)[:-2]
    for place, event in enumerate(events):
        event["trial"] |= {"phase": rng.choice(["screen", "screen", "race"])}
        event["trial"] |= {"status": "timeout", "time_ns": None} if place % 5 == 0 else {}
        if place % 5 == 1:  # by a clock that is too coarse for the kernel
            event["trial"]["time_ns"] |= {"median": 0.0, "low": 0.0, "high": 0.5}
    known: dict[str, dict[str, Any]] = {}
    numbers: set[tuple[str, int]] = set()
    runs = ("t.a", "t.b", "t.c")
    for run in runs:
        context.ingest.claim(job_id, claim_id=run, worker="w")
        lines = deliveries([started, *rng.sample(events, rng.randint(5, 12))])
        for _ in range(8):
            first = rng.randrange(len(lines))
            some = lines[first : first + rng.randint(1, 5)]
            context.ingest.deliver(job_id, claim_id=run, events=some)
            numbers |= {(run, item.sequence) for item in some}
            for trial in (cast(dict[str, Any], item.event["trial"]) for item in some if item.event is not started):
                known.setdefault(trial["id"], trial)
    with context.store.read() as tx:
        trials = [(trial.trial_id, trial.status) for trial in tx.trials.page(job_id)]
        delivered = {(run, number) for run in runs for number in tx.events.delivered(job_id, run)}
    assert trials == [(trial["id"], trial["status"]) for trial in known.values()]
    assert delivered == numbers
    assert sum(kind in ("job_started", "trial_finished") for kind in kinds(context, job_id)) == len(numbers)
    job = stored(context, job_id)
    assert job.trials_done == len(known)
    assert job.screened == sum(trial["phase"] == "screen" for trial in known.values())
    text = context.metrics.render()
    for status, count in Counter(trial["status"] for trial in known.values()).items():
        assert f'deuteron_trials_total{{status="{status}"}} {count}\n' in text


@pytest.mark.parametrize("odd", ["unknown", "too long", "of another record"])
def test_an_event_that_is_refused_takes_no_other_with_it(service, tune_events: Events, odd: str) -> None:
    context, job_id = service
    context.ingest.claim(job_id, claim_id="t.a", worker="w")
    started, first, second, *rest = tune_events(trials=3)
    (shape,) = [event for event in rest if event["kind"] == "shape_finished"]
    refused: dict[str, Any] = {
        "unknown": {"kind": "no such event"},
        "too long": {**second, "trial": {**second["trial"], "id": "x" * 1000}},
        "of another record": {**shape, "record": {**shape["record"], "shape": {"M": 1, "N": 1}}},
    }[odd]
    batch = deliveries([started, first, shape, refused, second])
    for _ in range(2):  # a worker that is not sure sends it again
        with pytest.raises((SchemaError, TooLong, Conflict)):
            context.ingest.deliver(job_id, claim_id="t.a", events=batch)
        with context.store.read() as tx:
            assert [trial.trial_id for trial in tx.trials.page(job_id)] == [first["trial"]["id"], second["trial"]["id"]]
            assert len(tx.configs.page(limit=10)) == 1
        assert kinds(context, job_id).count("trial_finished") == 2
        assert kinds(context, job_id).count("shape_finished") == 1


def test_what_bounds_a_trial_is_kept(service, tune_events: Events) -> None:
    context, job_id = service
    context.ingest.claim(job_id, claim_id="t.a", worker="w")
    events = tune_events(trials=2)
    time = events[1]["trial"]["time_ns"]
    protocol = {"clock": "device", "cold": True, "procedure": "first look"}
    code = {"programs": 7, "registers": 168, "resident_warps": 12, "most_warps": 64, "limiter": "registers"}
    events[1]["trial"]["measurement"] = {
        "time_ns": time, "protocol": protocol, "flop_s": 1e9, "byte_s": 1e9, "code": code, "bound": "registers",
    }  # fmt: skip
    context.ingest.deliver(job_id, claim_id="t.a", events=deliveries(events[:3]))
    assert stored(context, job_id).device_key == "cpu/test"
    with context.store.read() as tx:
        assert [trial.bound for trial in tx.trials.page(job_id)] == ["registers", None]


def test_a_run_that_never_had_the_job_has_nothing_to_tell(service, tune_events: Events) -> None:
    """A stranger's trials and records became what other searches start from. One that has lost the job keeps its
    trials, though it delivers the first of them afterwards."""
    context, job_id = service
    events = tune_events(trials=2)
    context.ingest.claim(job_id, claim_id="t.old", worker="w")
    context.ingest.release(job_id, reason="gone", claim_id="t.old")
    context.ingest.claim(job_id, claim_id="u.new", worker="w")
    with pytest.raises(NotFound, match="never given to the run 'stranger'"):
        context.ingest.deliver(job_id, claim_id="stranger", events=deliveries(events))
    with context.store.read() as tx:
        assert tx.trials.page(job_id) == [] and tx.configs.page(limit=1) == []
    assert not context.ingest.deliver(job_id, claim_id="t.old", events=deliveries(events)).proceed
    with context.store.read() as tx:
        assert len(tx.trials.page(job_id)) == 2 and len(tx.configs.page(limit=2)) == 1


@pytest.mark.parametrize("last", [{"kind": "job_failed", "error": "no", "hint": None, "at": "2026-01-01"}, None])
def test_only_the_run_that_owns_the_job_ends_it(service, tune_events: Events, last) -> None:
    context, job_id = service
    end = last or tune_events(trials=1)[-1]
    context.ingest.claim(job_id, claim_id="t.old", worker="w")
    context.ingest.claim(job_id, claim_id="t.new", worker="w")
    receipt = context.ingest.deliver(job_id, claim_id="t.old", events=deliveries([end]))
    assert not receipt.proceed
    assert stored(context, job_id).state is JobState.RUNNING
    context.ingest.deliver(job_id, claim_id="t.new", events=deliveries([end]))
    assert stored(context, job_id).state is (JobState.FAILED if last else JobState.SUCCEEDED)


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


class NotingLink:
    """A server that takes everything, and what it was told in its order."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
        self.heard += [str(item.event["kind"]) for item in events]
        return Receipt(proceed=True, cancel=False)

    def heartbeat(self, job_id: str, claim_id: str) -> Receipt:
        return Receipt(proceed=True, cancel=False)

    def release(self, job_id: str, claim_id: str) -> None:
        self.heard.append(f"{claim_id} gives {job_id} back")


def test_a_process_that_stops_hands_over_what_it_has_and_then_its_job(tmp_path: Path) -> None:
    handover, link = Handover(), NotingLink()
    with Reporter(cast(Link, link), Spool(tmp_path, "job", "t.1"), "job", "t.1") as reporter, handover.of(reporter):
        for number in range(5):
            reporter.emit({"kind": f"event {number}"})
        handover.stop()
        assert reporter.stop_requested and reporter.given_back
    assert link.heard == [f"event {number}" for number in range(5)] + ["t.1 gives job back"]
    # One that was claimed a moment later goes back, too.
    with Reporter(cast(Link, link), Spool(tmp_path, "job", "t.2"), "job", "t.2") as reporter, handover.of(reporter):
        assert reporter.stop_requested and link.heard[-1] == "t.2 gives job back"


def test_what_fails_while_a_process_stops_fails_no_job(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a pool of threads that takes nothing more."""
    context, job_id = service
    handover, link = Handover(), NotingLink()

    def runner(*_: object, **__: object) -> None:
        handover.stop()
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(run_module, "load_runner", lambda name: runner)
    bench = Bench("http://127.0.0.1:1", "token", "cpu", tmp_path, "any:run", tmp_path)
    bench.spool.mkdir()
    assignment = Assignment(json.loads(stored(context, job_id).spec), (), 1, 60.0)
    run_module._run_claimed(bench, cast(Link, link), job_id, "t.1", assignment, handover)
    assert link.heard == [f"t.1 gives {job_id} back"]


@pytest.mark.parametrize(
    ("end", "stops"),
    [
        *itertools.product([JobCancelled(), JobFailed("no configuration works", "see the trials")], [False, True]),
        (JobFinished((), 1.0), False),  # without a profile
    ],
)
def test_the_end_of_a_job_is_told_unless_it_is_given_back(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: TuneEvent, stops: bool
) -> None:
    context, job_id = service
    handover, link = Handover(), NotingLink()

    def runner(spec: object, *, emit: Callable[[Any], None], **_: object) -> None:
        if stops:
            handover.stop()
        emit(end)

    monkeypatch.setattr(run_module, "load_runner", lambda name: runner)
    bench = Bench("http://127.0.0.1:1", "token", "cpu", tmp_path, "any:run", tmp_path)
    bench.spool.mkdir()
    assignment = Assignment(json.loads(stored(context, job_id).spec), (), 1, 60.0)
    run_module._run_claimed(bench, cast(Link, link), job_id, "t.1", assignment, handover)
    assert link.heard == ([f"t.1 gives {job_id} back"] if stops else [end.to_json()["kind"]])


@pytest.mark.parametrize(
    ("receipt", "uploaded"),
    [(Receipt(proceed=True, cancel=True), True), (Receipt(proceed=False, cancel=False), False)],
    ids=["cancelled too late", "given to another run"],
)
def test_a_job_that_went_through_has_its_profile(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: Receipt, uploaded: bool
) -> None:
    context, job_id = service

    class AnsweringLink(NotingLink):
        def heartbeat(self, job_id: str, claim_id: str) -> Receipt:
            return receipt

        def upload_profile(self, job_id: str, claim_id: str, path: Path) -> None:
            self.heard.append(path.read_text())

    def runner(
        spec: object, *, emit: Callable[[Any], None], cancelled: Callable[[], bool], workdir: Path, **_: object
    ) -> None:
        deadline = time.monotonic() + 30
        while not cancelled() and time.monotonic() < deadline:
            time.sleep(0.01)
        (workdir / "search.hatchet").write_text("the profile")
        emit(JobFinished((), 1.0, "search.hatchet", "0" * 64))

    monkeypatch.setattr(run_module, "load_runner", lambda name: runner)
    bench, link = Bench("http://127.0.0.1:1", "token", "cpu", tmp_path, "any:run", tmp_path), AnsweringLink()
    bench.spool.mkdir()
    assignment = Assignment(json.loads(stored(context, job_id).spec), (), 1, 60.0)
    run_module._run_claimed(bench, cast(Link, link), job_id, "t.1", assignment, Handover())
    assert link.heard == (["the profile"] if uploaded else []) + ["job_finished"]


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


class RefusingLink:
    """A server that does not accept the worker's token any more."""

    def __init__(self, status: int) -> None:
        self.status = status

    def deliver(self, job_id: str, claim_id: str, events: Any, *, after: int = 0) -> Receipt:
        raise ServiceError("no", status=self.status, problem={})

    heartbeat = deliver


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


class SlowLink:
    """A server that answers when it is let."""

    def __init__(self) -> None:
        self.answers, self.took = threading.Event(), list[int]()

    def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
        assert self.answers.wait(30)
        self.took.extend(item.sequence for item in events)
        return Receipt(True, False)


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


def test_what_is_of_another_service_is_kept_for_a_while(service: Any) -> None:
    """Workers of two services on one host have one home; the other one's job was dropped with its trials."""
    context, _ = service
    folder = context.settings.directory("spool")
    left = Spool(folder, str(uuid.uuid4()), "ticket.run")
    left.append(JobStarted("k", "cpu/test", "random", 1, 5, None).to_json())
    left.close()
    dispatcher = DaskDispatcher(context.settings, context.store, context.ingest, "")
    began = time.monotonic()
    assert dispatcher._store_leftovers(folder) == 1
    dispatcher._recover()
    assert left.path.exists() and time.monotonic() - began < 1.5, "it is not waited for"
    link = cast(Link, RefusingLink(404))
    bench = Bench("http://127.0.0.1:1", "", "cpu", context.settings.home, "x:y", folder)
    assert deliver_leftovers(bench, link) == 0 and left.path.exists()
    old = time.time() - KEPT_S - 60
    os.utime(left.path, (old, old))
    dispatcher._store_leftovers(folder)
    assert not left.path.exists()


def test_what_killed_processes_had_begun_is_removed(service: Any) -> None:
    """Folders of runs, uploads and bundles in the making stayed for ever."""
    context, _ = service
    home, old = context.settings.home, time.time() - 3 * 86400
    bench = Bench("http://127.0.0.1:1", "", "cpu", home, "x:y", home / "locks")
    for name in ("dead.run", "alive.run", "new.run"):
        (bench.runs / name).mkdir(parents=True)
        (bench.runs / name / "search.hatchet").write_text("[]")
    for name in ("dead.run", "alive.run"):
        os.utime(bench.runs / name, (old, old))
    alive = Spool(bench.spool, "job", "alive.run")
    forget_dead_runs(bench)
    assert sorted(path.name for path in bench.runs.iterdir()) == ["alive.run", "new.run"]
    alive.close()

    folder = context.settings.directory("bundles")
    names = ["a.bundle", "x.part", ".x.part.k2j4", "y.gz.part"]
    for name in names:
        (folder / name).write_text("")
        os.utime(folder / name, (old, old))
    (folder / "now.part").write_text("")
    remove_parts(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["a.bundle", "now.part"]


def test_an_event_is_on_disk_before_it_may_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, "job", "ticket.run")
    synced: list[tuple[int, int]] = []

    def fsync(descriptor: int) -> None:
        assert os.fstat(descriptor).st_ino == spool.path.stat().st_ino
        synced.append((len(spool.path.read_bytes().splitlines()), len(spool.unsent())))

    monkeypatch.setattr("os.fsync", fsync)
    for number in range(3):
        spool.append({"kind": "x", "number": number})
    assert synced == [(1, 0), (2, 1), (3, 2)]
    assert [d.sequence for d in spool.unsent()] == [1, 2, 3]
    assert list(leftovers(tmp_path)) == []  # its writer is alive
    spool.acknowledge(2)
    assert [d.event["number"] for d in spool.unsent()] == [2]
    spool.close()
    (left,) = leftovers(tmp_path)
    assert (left.job_id, left.claim_id, len(left.deliveries)) == ("job", "ticket.run", 3)


def test_a_spool_that_was_acknowledged_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "job", "run")
    spool.append({"kind": "x"})
    spool.acknowledge(1)
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_line_cut_off_by_a_crash_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "job.run.jsonl").write_bytes(b'{"sequence":1,"event":{"kind":"x"}}\n{"sequence":2,"eve')
    (left,) = leftovers(tmp_path)
    assert [d.sequence for d in left.deliveries] == [1]


def test_a_damaged_line_keeps_none_behind_it_back(tmp_path: Path) -> None:
    lines = [b'{"sequence":%d,"event":{"kind":"x"}}' % number for number in (1, 2, 3)]
    lines[1] = lines[1][:9] + b"\x00" * 8 + lines[1][17:]
    (tmp_path / "job.run.jsonl").write_bytes(b"\n".join([*lines, b""]))
    (left,) = leftovers(tmp_path)
    assert [d.sequence for d in left.deliveries] == [1, 3]


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
