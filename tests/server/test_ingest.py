"""What runs deliver is stored once, whole or not at all, and only the run that has a job ends it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from store_rows import stored

from deuteron.server.context import ServiceContext
from deuteron.server.dispatch.ingest import Delivery
from deuteron.server.store import Conflict, JobState, NotFound, TooLong
from deuteron.tuner.errors import SchemaError

Events = Callable[..., list[dict[str, Any]]]


def deliveries(events: list[dict[str, Any]], first: int = 1) -> list[Delivery]:
    return [Delivery(first + place, event) for place, event in enumerate(events)]


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


@pytest.mark.parametrize("how", ["reported", "cancelled while it waits", "cancelled while it runs", "lost", "failed"])
def test_an_end_is_counted_whoever_it_is_due_to(service, tune_events: Events, how: str) -> None:
    """Only what workers reported was counted, and what nobody reports is what somebody should look at."""
    context, job_id = service
    if how not in ("cancelled while it waits", "failed"):
        context.ingest.claim(job_id, claim_id="t.a", worker="w")
    for _ in range(2):  # the second time it has ended
        if how == "reported":
            context.ingest.deliver(job_id, claim_id="t.a", events=deliveries(tune_events(trials=1)))
        if how.startswith("cancelled"):
            context.ingest.cancel(job_id)
        if how == "failed":
            context.ingest.fail(job_id, "no such device")
        context.ingest.release(job_id, reason="the worker was lost")
    for run in ("t.b", "t.c") if how == "lost" else ():
        context.ingest.claim(job_id, claim_id=run, worker="w")
        context.ingest.release(job_id, reason="the worker was lost")
    state = {"reported": "succeeded", "lost": "failed", "failed": "failed"}.get(how, "cancelled")
    lines = [line for line in context.metrics.render().splitlines() if "jobs_finished" in line and "#" not in line]
    assert lines == [f'deuteron_jobs_finished_total{{state="{state}"}} 1']
