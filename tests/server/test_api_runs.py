"""Runs of jobs over HTTP: claims, deliveries and ends. The test plays the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from played_worker import claim, deliver, submit


def test_a_run_from_claim_to_end(client: TestClient, tune_events: Callable[..., list[dict[str, Any]]]) -> None:
    job_id = submit(client)["id"]
    taken = claim(client, job_id)
    assert taken["attempt"] == 1
    assert taken["finished"] == []
    events = tune_events(trials=3)
    receipt = deliver(client, job_id, events[:3])
    assert receipt == {"proceed": True, "cancel": False, "missing": False}
    assert client.get(f"/v1/jobs/{job_id}").json()["progress"]["trials"] == 2
    deliver(client, job_id, events)  # the whole spool again: known lines are skipped
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert job["state"] == "succeeded"
    assert job["progress"]["trials"] == 3
    assert [config["config"]["BLOCK"] for config in job["configs"]] == [128]
    trials = client.get(f"/v1/jobs/{job_id}/trials").json()["trials"]
    assert [item["trial"] for item in trials] == [
        event["trial"] for event in events if event["kind"] == "trial_finished"
    ]
    assert deliver(client, job_id, events[:1], first=99)["proceed"] is False


def test_a_trial_says_what_bounds_it(client: TestClient, tune_events: Callable[..., list[dict[str, Any]]]) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    events = tune_events(trials=2)
    trial = events[1]["trial"]
    trial["reason"] = "<b>because</b>"
    trial["measurement"] = {
        "time_ns": trial["time_ns"],
        "protocol": {"clock": "device", "cold": True, "procedure": "first look"},
        "flop_s": 2e12,
        "byte_s": 1e12,
        "memory_share": 0.25,
        "code": {"programs": 7, "registers": 168, "resident_warps": 12, "most_warps": 64, "limiter": "registers"},
        "bound": "registers",
    }
    deliver(client, job_id, events[:3])
    first, second = client.get(f"/v1/jobs/{job_id}/trials").json()["trials"]
    words = "registers leave 12 of 64 warps a multiprocessor (168 registers a thread); 25% of the peak memory bandwidth"
    assert (first["bound"], first["explanation"]) == ("registers", words)
    assert (second["bound"], second["explanation"]) == (None, None)

    page = client.get(f"/jobs/{job_id}/trials/{trial['id']}").text
    for shown in (words, "device clock, cold cache, first look", "1000 GB/s, 25.0% of the peak", "19%, limited by"):
        assert shown in page
    assert "<b>because" not in page and "&lt;b&gt;because" in page
    unknown = client.get(f"/jobs/{job_id}/trials/{events[2]['trial']['id']}").text
    assert "Not known." in unknown and "Measurement</h2>" not in unknown
    assert client.get(f"/jobs/{job_id}/trials/nobody").status_code == 404


def test_a_takeover_gets_the_finished_trials_and_the_old_run_is_told_to_stop(
    client: TestClient, tune_events: Callable[..., list[dict[str, Any]]]
) -> None:
    job_id = submit(client)["id"]
    events = tune_events(trials=3)
    claim(client, job_id, "ticket.one")
    deliver(client, job_id, events[:2], claim_id="ticket.one")
    taken = claim(client, job_id, "ticket.two")
    assert taken["attempt"] == 2
    assert [item["trial"] for item in taken["finished"]] == [events[1]["trial"]]
    # The first run is alive after all: its trial counts, its end of the job does not.
    receipt = deliver(client, job_id, events[2:], first=3, claim_id="ticket.one")
    assert receipt["proceed"] is False
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["progress"]["trials"]) == ("running", 3)


def test_another_ticket_cannot_take_a_job_that_is_alive(client: TestClient) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id, "one.a")
    response = client.post(f"/v1/worker/jobs/{job_id}/claim", json={"claim_id": "two.a", "worker": "w"})
    assert response.status_code == 409
    assert "is running on cpu@here/1" in response.json()["detail"]


def test_attempts_are_bounded(client: TestClient) -> None:
    job_id = submit(client)["id"]
    for run in range(3):
        claim(client, job_id, f"t.{run}")
    response = client.post(f"/v1/worker/jobs/{job_id}/claim", json={"claim_id": "t.last", "worker": "w"})
    assert response.status_code == 409
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert job["state"] == "failed"
    assert "lost 3 times" in job["error"]


def test_cancel_of_a_running_job_reaches_the_run(client: TestClient) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    client.post(f"/v1/jobs/{job_id}/cancel")
    beat = client.post(f"/v1/worker/jobs/{job_id}/heartbeat", json={"claim_id": "ticket.run"})
    assert beat.json() == {"proceed": True, "cancel": True, "missing": False}
    deliver(client, job_id, [{"kind": "job_cancelled", "at": "2026-01-01T00:00:00+00:00"}])
    assert client.get(f"/v1/jobs/{job_id}").json()["state"] == "cancelled"


def test_failure_carries_its_reason(client: TestClient) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    event = {"kind": "job_failed", "error": "no such device", "hint": "cpu", "at": "2026-01-01"}
    deliver(client, job_id, [event])
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["error"]) == ("failed", "no such device\nhint: cpu")


def test_an_unknown_event_is_refused_and_everything_else_of_its_delivery_is_stored(
    client: TestClient, tune_events: Callable[..., list[dict[str, Any]]]
) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    trials = tune_events(trials=2)[1:3]
    body = {
        "claim_id": "ticket.run",
        "events": [
            {"sequence": 1, "event": trials[0]},
            {"sequence": 2, "event": {"kind": "surprise", "at": ""}},
            {"sequence": 3, "event": trials[1]},
        ],
    }
    response = client.post(f"/v1/worker/jobs/{job_id}/events", json=body)
    assert response.status_code == 422
    assert "surprise" in response.json()["detail"]
    stored = client.get(f"/v1/jobs/{job_id}/trials").json()["trials"]
    assert [trial["trial"]["id"] for trial in stored] == [event["trial"]["id"] for event in trials]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("created_at", "", "created_at: '' is not a time"),
        ("created_at", "2026-13-01T00:00:00Z", "is not a time"),
        ("created_at", "0001-01-01T00:00:00+23:59", "is not a time"),
        ("created_at", "9999-12-31T23:59:59-23:59", "is not a time"),
        ("shape", {"a,b": 5}, "'a,b' is not the name of a size"),
        ("shape", {"": 5}, "'' is not the name of a size"),
        ("shape", {"../x": 5}, "is not the name of a size"),
        ("id", "a/b", "record.id: 'a/b' is no id"),
        ("id", "", "record.id: '' is no id"),
        ("id", "a" * 37, "id: 'aaa"),
        ("dtype", "f" * 17, "dtype: 'fff"),
        ("shape", {"M": 0}, "record.shape: 'M' is 0"),
        ("time_ns", {"median": 0.0, "low": 0.0, "high": 1.0, "samples": 1}, "record.time_ns.median: 0"),
        ("default_time_ns", {"median": 1.0, "low": 1e-320, "high": 1.0, "samples": 1}, "record.default_time_ns.low"),
        ("speedup", {"median": 1.0, "low": 1.0, "high": 1.7e308, "samples": 1}, "record.speedup.high: 1.7e+308"),
        ("kernel_hash", "a" * 64, "is not the kernel of job"),
        ("kernel_name", "x\x1b[2J", "record.kernel_name: 'x\\x1b[2J' has a control character"),
        ("toolchain", {"a\nb": "1"}, "record.toolchain: 'a\\nb' has a control character"),
        ("config", {"\x85": 1}, "record.config: '\\x85' has a control character"),
        ("device", {"kind": "cpu", "name": "\x9b31m"}, "record.device: '\\x9b31m' has a control character"),
    ],
)
def test_records_that_no_table_could_keep_are_refused(
    client: TestClient, make_record: Callable[..., Any], field: str, value: object, message: str
) -> None:
    """Nor readers take: logarithms of sizes, quotients of times and names on terminals."""
    job = submit(client)
    job_id = job["id"]
    claim(client, job_id)
    made = make_record({"M": 64}, kernel_hash=job["kernel_hash"]).to_json()
    record = {**made, "shape_key": "", field: value}
    event = {"kind": "shape_finished", "record": record}
    body = {"claim_id": "ticket.run", "events": [{"sequence": 1, "event": event}]}
    answer = client.post(f"/v1/worker/jobs/{job_id}/events", json=body)
    assert answer.status_code == 422 and message in answer.json()["detail"]
    assert client.get("/v1/configs").json()["configs"] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": {"M": 0, "N": 64}}, "trial.shape: 'M' is 0"),
        ({"shape": {"M": 2**63, "N": 64}}, "trial.shape: 'M' is 9223372036854775808"),
        ({"time_ns": {"median": -1.0, "low": 1.0, "high": 1.0, "samples": 1}}, "trial.time_ns: -1 ns"),
        ({"time_ns": {"median": 1.0, "low": 1.0, "high": 1e300, "samples": 1}}, "trial.time_ns: 1e+300 ns"),
        ({"config": {"BLOCK": 2**64 - 1}}, "trial.config: 'BLOCK' is beyond 64 bits"),
        ({"config": {"B\x1b": 1}}, "trial.config: 'B\\x1b' has a control character"),
        ({"metrics": {"group_size": 2e7}}, "trial.metrics.group_size: 2e+07"),
        ({"metrics": {"group_index": -1.0}}, "trial.metrics.group_index: -1"),
        ({"metrics": {"ratio_pairs": 0.5}}, "trial.metrics.ratio_pairs: 0.5"),
        ({"metrics": {"duplicate_of": 1e30}}, "trial.metrics.duplicate_of: 1e+30"),
        ({"metrics": {"ratio_high": 1e300}}, "trial.metrics.ratio_high: 1e+300"),
        ({"number": 10**30}, "event.trial.number: a whole number beyond 64 bits"),
        ({"not_known": [{"x": 2**63}]}, "event.trial.not_known[0].x: a whole number beyond 64 bits"),
    ],
)
def test_trials_that_no_search_has_are_refused(
    client: TestClient, tune_events: Callable[..., Any], changes: dict[str, Any], message: str
) -> None:
    """The next run of the job, which gets them to go on from, ended it with an internal error."""
    job_id = submit(client)["id"]
    claim(client, job_id)
    event = tune_events(trials=1)[1]
    event["shape"] = changes.pop("shape", event["shape"])
    event["trial"] |= changes
    body = {"claim_id": "ticket.run", "events": [{"sequence": 1, "event": event}]}
    answer = client.post(f"/v1/worker/jobs/{job_id}/events", json=body)
    assert answer.status_code == 422 and message in answer.json()["detail"], answer.text
    assert client.get(f"/v1/jobs/{job_id}/trials").json()["trials"] == []
