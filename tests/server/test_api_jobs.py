"""Jobs over HTTP, as who submitted them sees them: lists, pages, cancelling and the stream of events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from played_worker import claim, deliver, events_of, submit


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


@pytest.mark.parametrize("cursor", ["!!!", "YWJj", "4pyT", "OTk5OTk5OTk5OTk5OTk5OTk5OQ"])  # the last one is 19 nines
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


def test_unknown_job(client: TestClient) -> None:
    for path in ("", "/events", "/trials", "/profile"):
        response = client.get(f"/v1/jobs/nobody{path}")
        assert response.status_code == 404
        assert response.json()["detail"] == "there is no job nobody"
