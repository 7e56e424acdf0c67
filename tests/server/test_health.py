"""Health, readiness, metrics and the description of the API."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient
from sent_bodies import JOB

from deuteron import migrations
from deuteron.server import Settings
from deuteron.server.metrics import Metrics

OpenClient = Callable[..., TestClient]


def test_health_and_readiness(client: TestClient, settings: Settings) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/readyz").json() == {"status": "ready", "revision": migrations.head()}
    migrations.downgrade(settings.database_url, "base")
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["hint"] == "deuteron db upgrade"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_server_whose_database_was_deleted_is_not_ready(
    client: TestClient, settings: Settings, replaced: bool
) -> None:
    assert client.get("/readyz").status_code == 200
    for path in settings.home.glob("deuteron.db*"):
        path.rename(path.with_name(f"gone-{path.name}"))
    if replaced:
        migrations.upgrade(settings.database_url)
    response = client.get("/readyz")
    assert (response.status_code, response.headers["content-type"]) == (503, "application/problem+json")
    assert "deleted or replaced" in response.json()["detail"]


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_into_a_database_that_was_deleted(
    settings: Settings, open_client: OpenClient, caplog: pytest.LogCaptureFixture, replaced: bool
) -> None:
    client = open_client(settings, raise_errors=False)
    assert client.post("/v1/jobs", json=JOB).status_code == 202
    gone = {path: path.with_name(f"gone-{path.name}") for path in settings.home.glob("deuteron.db*")}
    for path, new in gone.items():
        path.rename(new)
    if replaced:
        migrations.upgrade(settings.database_url)
    caplog.clear()
    answers = [client.post("/v1/jobs", json=JOB), client.get("/v1/jobs"), client.post("/v1/jobs", json=JOB)]
    assert [(answer.status_code, answer.json()["type"].rpartition(":")[2]) for answer in answers] == [
        (503, "database-lost")
    ] * 3
    assert caplog.text.count("deleted or replaced") == 1
    assert (settings.home / "deuteron.db").exists() is replaced, "no empty one is made"
    for path, new in gone.items():
        new.rename(path)
    assert [client.post("/v1/jobs", json=JOB).status_code, len(client.get("/v1/jobs").json()["jobs"])] == [202, 2]
    assert "is back" in caplog.text


def test_metrics(client: TestClient) -> None:
    client.post("/v1/jobs", json=JOB)
    client.get("/v1/jobs/nobody")
    text = client.get("/metrics").text
    assert 'deuteron_jobs{state="queued"} 1' in text
    assert 'deuteron_jobs_submitted_total{device="cpu"} 1' in text
    assert 'deuteron_requests_total{route="/v1/jobs/{job_id}",status="404"} 1' in text
    assert 'deuteron_request_seconds_bucket{route="/v1/jobs",le="+Inf"} 1' in text
    names = [line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[:1] != "#"]
    assert len(text.splitlines()) == len(set(text.splitlines()))
    assert all(name.startswith("deuteron_") for name in names)


def test_metrics_have_all_their_digits() -> None:
    metrics = Metrics()
    metrics.count("trials", 5_000_000)
    metrics.count("trials", 4)
    metrics.observe("/x", 0.1234567890123)
    lines = metrics.render([("last_training_timestamp_seconds", {}, 1795817432.123456)]).splitlines()
    assert "deuteron_trials_total 5000004" in lines
    assert "deuteron_last_training_timestamp_seconds 1795817432.123456" in lines
    assert 'deuteron_request_seconds_sum{route="/x"} 0.1234567890123' in lines


def test_openapi_describes_every_address(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    operations = [(path, operation) for path, methods in document["paths"].items() for operation in methods.values()]
    assert len(operations) >= 25
    assert [path for path, operation in operations if not operation.get("summary")] == []
    job = document["components"]["schemas"]["JobBody"]
    assert job["examples"][0]["workload"] == "softmax"
    assert [name for name, field in job["properties"].items() if "description" not in field] == []
