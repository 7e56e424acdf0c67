"""Pages of a large job: they read as much as of a small one, and what they leave out is not what matters."""

from __future__ import annotations

import json
import random
import re
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from deuteron.server.dispatch.ingest import Delivery
from deuteron.server.models import EventRow, TrialRow
from deuteron.server.pages import charts, parameters, trial_list
from deuteron.server.store import NewJob, NewTrial, ServiceStore
from deuteron.server.store import trials as trials_module
from deuteron.tuner import Interval, Trial
from deuteron.tuner.events import TrialFinished
from deuteron.tuner.measure.measurement import Measurement, TimingProtocol

SMALL, LARGE = 400, 2000
STEP = 10


def make_trial(number: int, draw: random.Random) -> Trial:
    config: dict[str, Any] = {"A": number % 3, "B": number % 7, "C": number}
    if number % 10 == 9:
        return Trial(number, config, "failed", "screen", error="no")
    time = Interval(median := draw.uniform(100, 200), median, median, 3)
    protocol = TimingProtocol("device", True, "first look")
    measured = Measurement(time, protocol, 4e9 / median, 2e9 / median, 20 / median, 50 / median)
    return Trial(number, config, "ok", "screen", time, measurement=measured)


def add_job(store: ServiceStore, trials: int) -> str:
    """A job with this many trials of two shapes, and their events, put there at once."""
    job_id, draw, now = str(uuid.uuid4()), random.Random(trials), datetime.now(UTC)
    rows, events = [], []
    for sequence in range(1, trials + 1):
        shape = {"M": 1 + sequence % 2}
        trial = make_trial(sequence // 2, draw)
        text = json.dumps(shape)
        key = {"job_id": job_id, "claim_id": "t.1", "sequence": sequence}
        rows.append(
            {
                "job_id": job_id, "trial_id": trial.id, "phase": trial.phase, "sequence": sequence, "attempt": 1,
                "dtype": "f32", "shape": text, "status": trial.status, "bound": None, "best": sequence <= 2,
                "median_ns": trial.time_ns.median if trial.time_ns else None,
                "body": json.dumps(trial.to_json()), "recorded_at": now,
            }
        )  # fmt: skip
        body = json.dumps(TrialFinished(shape, "f32", trial, None).to_json())
        events.append({**key, "id": sequence, "kind": "trial_finished", "body": body, "created_at": now})
    with store.write() as tx:
        tx.jobs.add(NewJob(job_id, "softmax", "a" * 64, "cpu", "{}", trials))
        tx.jobs.name_device(job_id, "cpu/x")
        tx.jobs.advance(job_id, trials=trials, last_event=trials)
    with store.database.write() as connection:
        connection.execute(sa.insert(TrialRow), rows)
        connection.execute(sa.insert(EventRow), events)
    return job_id


class Steps:
    """Counts what SQLite's virtual machine does, in tens of instructions: the same on every machine."""

    def __init__(self) -> None:
        self.taken = 0

    def attach(self, connection: Any, *_more: object) -> None:
        connection.set_progress_handler(self._count, STEP)

    def _count(self) -> int:
        self.taken += 1
        return 0


@pytest.fixture
def store(client: TestClient) -> ServiceStore:
    found: ServiceStore = client.app.state.context.store  # type: ignore[attr-defined]
    return found


def test_pages_read_no_more_of_a_large_job(
    client: TestClient, store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "MOST_POINTS", 100)
    monkeypatch.setattr(parameters, "_MOST_TRIALS", 100)
    monkeypatch.setattr(trial_list, "_SHOWN", 20)
    monkeypatch.setattr(charts, "SHOWN_TRIALS", 20)
    steps = Steps()
    engine = store.database.engine
    engine.dispose()
    sa.event.listen(engine, "connect", steps.attach)
    jobs = {trials: add_job(store, trials) for trials in (SMALL, LARGE)}

    def cost(job_id: str, address: str) -> int:
        steps.taken = 0
        trials = client.get(f"/v1/jobs/{job_id}/trials?limit=1").json()["trials"]
        begun = steps.taken
        answer = client.get(address.format(job=job_id, trial=trials[0]["trial"]["id"]))
        assert answer.status_code == 200, answer.text
        return steps.taken - begun

    for address in (
        "/",
        "/jobs/{job}",
        "/jobs/{job}/results",
        "/jobs/{job}/charts",
        "/jobs/{job}/trials",
        "/jobs/{job}/trials?before=300",
        "/jobs/{job}/trials?only=failed",
        "/jobs/{job}/trials?only=final",
        "/jobs/{job}/trials?only=crashed",
        "/jobs/{job}/trials/{trial}",
        "/jobs/{job}/parameters",
        "/compare?a={job}&b={job}",
        "/v1/jobs/{job}",
        "/v1/jobs/{job}/trials?limit=20",
        "/v1/jobs/{job}/trials?limit=20&cursor=MzAw",
    ):
        small, large = (cost(jobs[trials], address) for trials in (SMALL, LARGE))
        assert 0 < large < 1.5 * small + 20, f"{address}: {STEP * small} and {STEP * large} instructions"


def test_a_delivery_costs_no_more_in_a_large_job(client: TestClient, store: ServiceStore) -> None:
    steps, ingest = Steps(), client.app.state.context.ingest  # type: ignore[attr-defined]
    sa.event.listen(store.database.engine, "connect", steps.attach)
    store.database.engine.dispose()
    jobs = [add_job(store, trials) for trials in (SMALL, LARGE)]
    taken = []
    for job_id in jobs:
        ingest.claim(job_id, claim_id="t.1", worker="w")
        event = TrialFinished({"M": 1}, "f32", make_trial(1, random.Random(1)), None).to_json()
        steps.taken = 0
        ingest.deliver(job_id, claim_id="t.1", events=[Delivery(10**6, event)])
        taken.append(steps.taken)
        with store.read() as tx:
            assert tx.jobs.get(job_id).screened == 1, "those put there at once were not counted"
    assert 0 < taken[1] < 1.5 * taken[0] + 20


def test_what_is_learnt_of_a_search_is_read_of_a_large_job_alike(
    client: TestClient, store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_module, "MOST_LOOKED_AT", 100)
    steps = Steps()
    sa.event.listen(store.database.engine, "connect", steps.attach)
    store.database.engine.dispose()
    jobs = {trials: add_job(store, trials) for trials in (SMALL, LARGE)}
    with store.read() as tx:
        searches = tx.trials.searches("softmax", "a" * 64)
        assert [search.job_id for search in searches] == 2 * [jobs[LARGE]] + 2 * [jobs[SMALL]]
        fastest, decided = [], []
        for search in searches:
            steps.taken = 0
            assert len(tx.trials.fastest(search, limit=20)) == 20
            fastest.append(steps.taken)
            assert tx.trials.decided(search.job_id, search.shape, search.dtype) == []
            decided.append(steps.taken - fastest[-1])
    for taken in (fastest, decided):
        assert max(taken[:2]) < 1.5 * min(taken[2:]) + 20, f"{[STEP * count for count in taken]} instructions"


def test_the_best_so_far_is_always_drawn(
    client: TestClient, store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "MOST_POINTS", 10)
    job_id = str(uuid.uuid4())
    draw = random.Random(3)
    fastest: dict[str, float] = {}
    best = []
    with store.write() as tx:
        tx.jobs.add(NewJob(job_id, "softmax", "a" * 64, "cpu", "{}", 300))
        for number in range(300):
            trial, shape = make_trial(number, draw), json.dumps({"M": number % 2})
            median = trial.time_ns.median if trial.time_ns else None
            new = NewTrial(
                trial.id, trial.phase, 1, "f32", shape, trial.status, median, json.dumps(trial.to_json()), None
            )
            tx.trials.append(job_id, new)
            if median is not None and median < fastest.get(shape, 1e9):
                fastest[shape] = median
                best.append(trial.id)
        tx.jobs.advance(job_id, trials=300, last_event=0)
    answer = client.get(f"/jobs/{job_id}/charts").json()
    points = {point["id"]: point for point in answer["points"]}
    assert [point["id"] for point in answer["points"] if point["best"]] == best
    assert set(best) <= points.keys() and len(points) <= 10 + len(best)
    assert [row["sequence"] for row in answer["rows"]] == list(range(300, 100, -1))
    (roof,) = answer["roofs"]
    assert (roof["flop_s"], roof["byte_s"]) == pytest.approx((2e8, 4e7))
    assert roof["dtype"] == "f32"


def test_windows_of_trials_leave_nothing_out(
    client: TestClient, store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_list, "_SHOWN", 30)
    job_id = add_job(store, 100)
    for only, wanted in (("", 100), ("failed", 10), ("ok", 90), ("final", 0), ("nothing like it", 100)):
        seen: list[int] = []
        address = f"/jobs/{job_id}/trials?only={only}"
        while address:
            text = client.get(address).text
            seen += map(int, re.findall(r">(\d+)</a></td>", text))
            older = re.search(r'<a href="([^"]*)" class="button">Older', text)
            address = older[1].replace("&amp;", "&") if older else ""
        assert len(seen) == wanted and seen == sorted(set(seen), reverse=True), only
    assert client.get("/jobs/nobody/trials").status_code == 404
    assert client.get(f"/jobs/{job_id}/trials?before=0").status_code == 422
