"""Jobs over HTTP without a dispatcher: what a test does that submits one and plays its worker."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

JOB = {"workload": "softmax", "shapes": [{"M": 64, "N": 64}], "budget": {"trials": 5}}


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
