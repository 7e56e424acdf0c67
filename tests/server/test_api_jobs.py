"""Jobs over HTTP, without a dispatcher: the test plays the worker."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from stores import context_of, put

from deuteron.compiler.errors import DeviceError
from deuteron.server import Settings, submission
from deuteron.server.api.schemas.jobs import JobBody
from deuteron.server.checking import target_of
from deuteron.server.dispatch import NoDispatcher
from deuteron.server.fingerprints import fingerprints
from deuteron.server.store.idempotency import IdempotencyKeys
from deuteron.server.store.jobs import Jobs
from deuteron.tuner import Budget, ConfigRecord, DeviceFingerprint, builtin_workload
from deuteron.tuner.codec import canonical_json

JOB = {"workload": "softmax", "shapes": [{"M": 64, "N": 64}], "budget": {"trials": 5}}
MakeRecord = Callable[..., ConfigRecord]


def submit(client: TestClient, **changes: object) -> dict[str, Any]:
    response = client.post("/v1/jobs", json={**JOB, **changes})
    assert response.status_code == 202, response.text
    assert response.headers["location"] == f"/v1/jobs/{response.json()['id']}"
    return dict(response.json())


def events_of(client: TestClient, job_id: str, **headers: str) -> list[dict[str, str]]:
    """The events of an ended job."""
    text = client.get(f"/v1/jobs/{job_id}/events", headers=headers).text
    blocks = [block for block in text.split("\n\n") if block.startswith("id:")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


def claim(client: TestClient, job_id: str, claim_id: str = "ticket.run") -> dict[str, Any]:
    response = client.post(f"/v1/worker/jobs/{job_id}/claim", json={"claim_id": claim_id, "worker": "cpu@here/1"})
    assert response.status_code == 200, response.text
    return dict(response.json())


def deliver(
    client: TestClient,
    job_id: str,
    events: list[dict[str, Any]],
    *,
    first: int = 1,
    claim_id: str = "ticket.run",
) -> dict[str, Any]:
    body = {
        "claim_id": claim_id,
        "events": [{"sequence": first + i, "event": event} for i, event in enumerate(events)],
    }
    response = client.post(f"/v1/worker/jobs/{job_id}/events", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_a_submission_is_stored_with_its_kernel(client: TestClient) -> None:
    job = submit(client)
    assert job["state"] == "queued"
    assert job["progress"] == {"trials": 0, "screened": 0, "trials_total": 5}
    detail = client.get(job["links"]["self"]).json()
    assert detail["spec"]["workload"]["name"] == "softmax"
    assert detail["spec"]["shapes"] == [{"M": 64, "N": 64}]
    kernel = client.get(job["links"]["kernel"]).json()
    assert kernel["name"] == job["kernel_name"]
    assert "def " + kernel["name"] in kernel["text"]


def test_idempotency_key(client: TestClient) -> None:
    headers = {"Idempotency-Key": "key-1"}
    first = client.post("/v1/jobs", json=JOB, headers=headers)
    reordered = dict(reversed(JOB.items()))
    again = client.post("/v1/jobs", json=reordered, headers=headers)
    assert again.status_code == 202
    assert again.json()["id"] == first.json()["id"]
    other = client.post("/v1/jobs", json={**JOB, "seed": 9}, headers=headers)
    assert other.status_code == 422
    assert other.json()["type"].endswith(":conflict")
    assert first.json()["id"] in other.json()["detail"]
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


_BUDGETS: list[Any] = [
    *(None, {}, {"trials": 4}, {"trials": 50}, {"trials": 50.0, "seconds": 2}, {"trials": None, "seconds": None}),
    *({"trials": 100}, {"settle": False}, {"seconds": 60, "settle": True}, {"trials": 50, "settle": False}),
]


@pytest.mark.parametrize("budget", _BUDGETS)
@pytest.mark.parametrize("rest", [{}, {"seed": 0, "device": "cpu"}, {"seed": 3, "strategy": "random", "dtypes": None}])
def test_bodies_have_the_fingerprints_that_services_of_before_gave_them(budget: Any, rest: dict[str, Any]) -> None:
    """Those of 22 November on wrote every field with its default, and those of before did not know `settle`. A job
    without a budget had 50 trials then."""
    said = {**JOB, **rest, "budget": budget}
    body = JobBody.model_validate({name: value for name, value in said.items() if value is not None})
    whole = body.model_dump(mode="json", exclude_none=True)
    if budget is None:
        whole["budget"]["trials"] = 50
    without = {**whole, "budget": {k: v for k, v in whole["budget"].items() if k != "settle" or v}}
    written = [hashlib.sha256(canonical_json(document).encode()).hexdigest() for document in (whole, without)]
    assert fingerprints(body) == tuple(written)


def test_a_key_of_an_older_service_finds_its_job(client: TestClient) -> None:
    store, job = client.app.state.context.store, submit(client)  # type: ignore[attr-defined]
    body = {"workload": "softmax", "shapes": [{"M": 64, "N": 64}], "budget": {"trials": 4, "seconds": 20}}
    written = canonical_json({**body, "device": "cpu", "seed": 0, "budget": {"trials": 4, "seconds": 20.0}})
    with store.write() as tx:
        tx.idempotency.add("single-user", "o1", hashlib.sha256(written.encode()).hexdigest(), job["id"])
    again = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "o1"})
    assert (again.status_code, again.json()["id"]) == (202, job["id"])
    settling = {**body, "budget": {**body["budget"], "settle": True}}
    assert client.post("/v1/jobs", json=settling, headers={"Idempotency-Key": "o1"}).status_code == 422


def test_a_job_that_leaves_its_trials_out_gets_what_the_service_allows(
    settings: Settings, open_client: Callable[..., TestClient]
) -> None:
    client = open_client(replace(settings, max_trials=150))
    two = {"shapes": [{"M": 64, "N": 64}, {"M": 64, "N": 128}]}
    for changes, trials, total in (
        ({"budget": {}}, 150, 0),
        ({"budget": {"seconds": 1e9}}, 150, 0),
        ({"budget": {"seconds": 60}, **two}, 75, 0),
        ({"budget": {"trials": 75}, **two}, 75, 150),
    ):
        job = submit(client, **changes)
        assert job["progress"]["trials_total"] == total
        assert client.get(job["links"]["self"]).json()["spec"]["budget"]["trials"] == trials
    many = {"budget": {"seconds": 1}, "shapes": [{"M": 8, "N": n} for n in range(1, 152)]}
    assert client.post("/v1/jobs", json={**JOB, **many}).status_code == 422


def test_a_job_without_a_budget_has_that_of_the_command_line(client: TestClient) -> None:
    job = client.post("/v1/jobs", json={name: value for name, value in JOB.items() if name != "budget"}).json()
    assert job["progress"]["trials_total"] == Budget().trials


def test_what_is_given_twice_is_tuned_once(client: TestClient) -> None:
    job = submit(client, shapes=[{"M": 64, "N": 64}, {"M": 8, "N": 8}, {"N": 64, "M": 64}], dtypes=["f32", "float32"])
    assert job["progress"]["trials_total"] == 2 * 5
    spec = client.get(job["links"]["self"]).json()["spec"]
    assert (spec["shapes"], spec["dtypes"]) == ([{"M": 64, "N": 64}, {"M": 8, "N": 8}], ["f32"])


def test_bad_idempotency_key(client: TestClient) -> None:
    response = client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "a b"})
    assert (response.status_code, response.json()["type"].split(":")[-1]) == (
        400,
        "bad-idempotency-key",
    )


def test_pages_follow_the_link_header(client: TestClient) -> None:
    made = [submit(client, seed=i)["id"] for i in range(5)]
    seen: list[str] = []
    address = "/v1/jobs?limit=2"
    while address:
        response = client.get(address)
        seen += [job["id"] for job in response.json()["jobs"]]
        link = response.headers.get("link")
        assert (link is None) == (response.json()["next"] is None)
        address = link.split(">")[0].lstrip("<") if link else ""
    assert seen == made[::-1]


@pytest.mark.parametrize("cursor", ["!!!", "YWJj", "4pyT"])
def test_bad_cursor(client: TestClient, cursor: str) -> None:
    response = client.get("/v1/jobs", params={"cursor": cursor})
    assert response.status_code == 400
    assert "cursor" in response.json()["detail"]


def test_list_by_state(client: TestClient) -> None:
    queued, cancelled = submit(client), submit(client)
    client.post(cancelled["links"]["cancel"])
    found = client.get("/v1/jobs?state=cancelled").json()["jobs"]
    assert [job["id"] for job in found] == [cancelled["id"]]
    assert client.get("/v1/jobs?state=queued").json()["jobs"][0]["id"] == queued["id"]
    assert client.get("/v1/jobs?state=lost").status_code == 422


def test_cancel_is_idempotent_and_final(client: TestClient) -> None:
    job = submit(client)
    first = client.post(job["links"]["cancel"]).json()
    second = client.post(job["links"]["cancel"]).json()
    assert first["state"] == second["state"] == "cancelled"
    assert first["finished_at"] == second["finished_at"]
    kinds = [(e["event"], json.loads(e["data"])["state"]) for e in events_of(client, job["id"])]
    assert kinds == [("job_state", "cancelled")]
    response = client.post(f"/v1/worker/jobs/{job['id']}/claim", json={"claim_id": "a.b", "worker": "w"})
    assert response.status_code == 409


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


def test_a_jobs_page_says_what_earlier_searches_were_worth(
    client: TestClient, tune_events: Callable[..., list[dict[str, Any]]]
) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    events = tune_events(trials=1)
    start = {"sources": ["M=<8> f32 on cpu/x"], "tried": 4, "screened": 22, "budget": 100, "share": 0.97}
    events[2]["start"] = {**start, "ended_early": True}
    assert "started from" not in client.get(f"/jobs/{job_id}").text
    deliver(client, job_id, events[:3])
    for page in (f"/jobs/{job_id}", f"/jobs/{job_id}/results"):
        text = client.get(page).text
        assert "started from M=&lt;8&gt; f32 on cpu/x; the best of 4 known ones reached 97.0% of the best found" in text
        assert "ended after 22 of 100 configurations" in text


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


# -- events


def test_events_resume_after_last_event_id(
    client: TestClient, tune_events: Callable[..., list[dict[str, Any]]]
) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    deliver(client, job_id, tune_events(trials=3))
    everything = events_of(client, job_id)
    assert [int(event["id"]) for event in everything] == list(range(1, len(everything) + 1))
    assert everything[0]["event"] == "job_state"
    assert json.loads(everything[-1]["data"])["state"] == "succeeded"
    rest = events_of(client, job_id, **{"Last-Event-ID": "4"})
    assert rest == everything[4:]
    assert client.get(f"/v1/jobs/{job_id}/events?after=4").text.count("id:") == len(rest)
    done = client.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": str(len(everything))})
    assert done.status_code == 204


def test_bad_last_event_id(client: TestClient) -> None:
    job_id = submit(client)["id"]
    response = client.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "x"})
    assert response.status_code == 400


# -- profile


def upload(client: TestClient, job_id: str, content: bytes, claim_id: str = "ticket.run") -> int:
    """The status of an upload of a run."""
    address = f"/v1/worker/jobs/{job_id}/profile?claim_id={claim_id}"
    return client.put(address, content=content).status_code


def test_only_the_run_that_has_a_job_uploads_its_profile(client: TestClient, tune_events: Any) -> None:
    """What it uploaded before goes away, unless another job has the same."""
    folder = client.app.state.context.settings.directory("profiles")  # type: ignore[attr-defined]
    job_id, other = submit(client)["id"], submit(client)["id"]
    assert client.put(f"/v1/worker/jobs/{job_id}/profile", content=b"[]").status_code == 422
    assert upload(client, job_id, b"[0]") == 409, "nobody has claimed it"
    claim(client, job_id)
    claim(client, other, "other.run")
    assert upload(client, job_id, b"[0]", "other.run") == 409
    assert list(folder.iterdir()) == []
    assert [upload(client, job_id, b"[1]"), upload(client, other, b"[1]", "other.run")] == [204, 204]
    for content in (b"[2]", b"[2]", b"[3]"):
        assert upload(client, job_id, content) == 204
        assert client.get(f"/v1/jobs/{job_id}/profile").content == content
    assert sorted(path.read_bytes() for path in folder.iterdir()) == [b"[1]", b"[3]"]
    deliver(client, job_id, tune_events(trials=1))
    assert upload(client, job_id, b"[4]") == 409, "the job has ended"
    assert client.get(f"/v1/jobs/{job_id}/profile").content == b"[3]"
    assert client.get(f"/v1/jobs/{other}/profile").content == b"[1]"


def test_profile_upload_and_download(client: TestClient) -> None:
    job_id = submit(client)["id"]
    missing = client.get(f"/v1/jobs/{job_id}/profile")
    assert missing.status_code == 404
    assert "has no profile yet" in missing.json()["detail"]
    content = b'[{"frame": {"name": "ROOT"}}]' * 1000
    claim(client, job_id)
    assert upload(client, job_id, content) == 204
    got = client.get(f"/v1/jobs/{job_id}/profile")
    assert got.content == content
    assert ".hatchet" in got.headers["content-disposition"]
    etag = got.headers["etag"]
    assert got.headers["cache-control"] == "private, no-cache"
    for named in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        assert client.get(f"/v1/jobs/{job_id}/profile", headers={"If-None-Match": named}).status_code == 304, named
    for asked, length in (({}, 5), ({"If-Range": etag}, 5), ({"If-Range": '"other"'}, len(content))):
        part = client.get(f"/v1/jobs/{job_id}/profile", headers={"Range": "bytes=0-4", **asked})
        assert len(part.content) == length
    for at in ({}, {"If-Range": etag}, {"If-Range": got.headers["last-modified"]}):
        behind = client.get(f"/v1/jobs/{job_id}/profile", headers={"Range": f"bytes={len(content)}-", **at})
        assert (behind.status_code, behind.headers["content-type"]) == (416, "application/problem+json")
        assert behind.headers["content-range"] == f"bytes */{len(content)}"


def test_an_ended_job_without_a_profile_is_not_said_to_get_one(client: TestClient, tune_events: Any) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    deliver(client, job_id, tune_events(trials=1))
    missing = client.get(f"/v1/jobs/{job_id}/profile")
    assert missing.status_code == 404
    assert missing.json()["detail"] == f"job {job_id} has no profile: it is succeeded"


def test_no_part_of_an_empty_profile(client: TestClient) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    assert upload(client, job_id, b"") == 204
    for part in ("bytes=0-", "bytes=-5"):
        answer = client.get(f"/v1/jobs/{job_id}/profile", headers={"Range": part})
        assert (answer.status_code, answer.headers["content-type"]) == (416, "application/problem+json")


def test_a_profile_is_on_disk_before_a_job_has_it(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and its name; and nothing is kept for a job that is not there."""
    folder = client.app.state.context.settings.directory("profiles")  # type: ignore[attr-defined]
    assert upload(client, str(uuid.uuid4()), b"[]") == 404
    assert list(folder.iterdir()) == []
    order: list[str] = []
    real_sync, real_attach = os.fsync, Jobs.attach_profile

    def fsync(handle: int) -> None:
        order.append("folder" if os.fstat(handle).st_ino == folder.stat().st_ino else "file")
        real_sync(handle)

    def attach(jobs: Jobs, job_id: str, digest: str) -> None:
        order.append("attached")
        real_attach(jobs, job_id, digest)

    job_id = submit(client)["id"]
    claim(client, job_id)
    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.setattr(Jobs, "attach_profile", attach)
    assert upload(client, job_id, b"[]") == 204
    assert order == ["file", "folder", "attached"]


# -- bad submissions


@pytest.mark.parametrize(
    ("changes", "status", "fragment"),
    [
        ({"workload": "soft"}, 422, "unknown workload 'soft'"),
        ({"shapes": [{"M": 4}]}, 422, "lacks 'N'"),
        ({"shapes": [{"M": 4, "N": -1}]}, 422, "N=-1"),
        ({"shapes": []}, 422, "body.shapes"),
        ({"dtypes": ["f99"]}, 422, "f99"),
        ({"device": "tpu"}, 422, "'tpu' is not a device"),
        ({"budget": {"trials": 0}}, 422, "body.budget.trials"),
        ({"strategy": "magic"}, 422, "magic"),
        ({"color": "red"}, 422, "body.color"),
        ({"budget": {"trials": 10**9}}, 422, "trials"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else None,
)
def test_bad_submission(client: TestClient, changes: dict[str, object], status: int, fragment: str) -> None:
    response = client.post("/v1/jobs", json={**JOB, **changes})
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert fragment in response.json()["detail"]
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_unknown_job(client: TestClient) -> None:
    for path in ("", "/events", "/trials", "/profile"):
        response = client.get(f"/v1/jobs/nobody{path}")
        assert response.status_code == 404
        assert response.json()["detail"] == "there is no job nobody"


# -- what the tables cannot hold


def test_shapes_and_names_that_are_too_long_are_refused_when_they_are_submitted(client: TestClient) -> None:
    softmax = builtin_workload("softmax").to_json()
    dims = {f"a_long_name_of_a_dim_{number}": 10**6 for number in range(20)}
    wide = {**softmax, "dims": ["M", "N", *dims], "shapes": []}
    long = "softmax_kernel" + "x" * 200
    source = softmax["kernel"]["source"].replace("softmax_kernel", long)  # type: ignore[index]
    for workload, shape, where in (
        (wide, {"M": 8, "N": 8, **dims}, "the shape M=8,N=8,a_long"),
        ({**softmax, "kernel": {"name": long, "source": source}}, {"M": 8, "N": 8}, "name: 'softmax_kernelxx"),
    ):
        answer = client.post("/v1/jobs", json={"workload": workload, "shapes": [shape]})
        assert answer.status_code == 422 and answer.json()["detail"].startswith(where), answer.text
    assert client.get("/v1/jobs").json()["jobs"] == []


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


def test_one_key_at_two_servers_makes_one_job(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other server's job is stored after this one looked for it."""
    body, headers = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}, {"Idempotency-Key": "k"}
    first = client.post("/v1/jobs", json=body, headers=headers).json()["id"]
    find, looks = IdempotencyKeys.find, itertools.count()

    def blind(self: IdempotencyKeys, *key: str) -> str | None:
        return None if next(looks) < 2 else find(self, *key)

    monkeypatch.setattr(IdempotencyKeys, "find", blind)
    again = client.post("/v1/jobs", json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (202, first)
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


@pytest.mark.parametrize(
    ("present", "taken"),
    [
        (["cpu", "cuda:0"], {"cpu", "cuda", "cuda:0"}),
        (["cpu"], {"cpu"}),
        (["cuda:1"], {"cuda", "cuda:1"}),
        (None, {"cpu", "cuda", "cuda:0", "cuda:1"}),
    ],
)
def test_jobs_are_for_devices_that_are_there(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, present: list[str] | None, taken: set[str]
) -> None:
    """Where workers may join later, for all."""
    context = context_of(client)
    monkeypatch.setattr(NoDispatcher, "devices", lambda _dispatcher: present)
    for device in ("cpu", "cuda", "cuda:0", "cuda:1"):
        with nullcontext() if device in taken else pytest.raises(DeviceError, match="is not present on this service"):
            submission._check_device(context, device)


def test_jobs_are_checked_for_gpus_that_workers_announced(client: TestClient, make_record: MakeRecord) -> None:
    """A record that was brought from elsewhere says nothing of the limits here."""
    context = context_of(client)
    here, elsewhere = (DeviceFingerprint("cuda", name, sm_count=1, compute_capability=(7, 5)) for name in ("T4", "RTX"))
    put(client, make_record({"M": 64, "N": 64}, device=elsewhere))
    unknown = target_of(context, "cuda")
    assert (unknown.properties.name, unknown.properties.compute_capability) == ("cuda", None)
    with context.store.write() as tx:
        tx.devices.announce(
            key=here.key, kind="cuda", name="T4", fingerprint=json.dumps(here.to_json()), worker="cuda:0@h/1"
        )
    assert (target_of(context, "cuda").properties.name, target_of(context, "cuda").target) == ("T4", "cuda:75")
    assert target_of(context, "cpu").target == "cpu"
