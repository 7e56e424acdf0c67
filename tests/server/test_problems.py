"""Problem documents: every kind of error, a full disk, and a database that is away or takes no writes."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sent_bodies import JOB, KERNEL
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from deuteron.server import Settings

OpenClient = Callable[..., TestClient]


def test_every_kind_of_error_is_a_problem_document(client: TestClient) -> None:
    answers = {
        400: client.post("/v1/jobs", content='{"workload": ', headers={"Content-Type": "application/json"}),
        404: client.get("/v1/nothing"),
        405: client.delete("/v1/jobs"),
        422: client.post("/v1/jobs", json={"shapes": 3}),
    }
    for status, response in answers.items():
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        document = response.json()
        assert document["status"] == status
        assert document["type"].startswith("urn:deuteron:problem:")
        assert document["title"]
        assert document["detail"]
    assert "not JSON" in answers[400].json()["detail"]
    assert answers[422].json()["errors"]


def test_a_bug_is_an_incident_without_a_traceback(
    settings: Settings,
    open_client: OpenClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = open_client(settings, raise_errors=False)

    def broken(*_args: object, **_named: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("deuteron.server.store.jobs.Jobs.page", broken)
    response = client.get("/v1/jobs")
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    incident = response.json()["instance"].removeprefix("urn:uuid:")
    assert incident in caplog.text
    assert "secret detail" in caplog.text


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/jobs"), ("POST", "/v1/workloads/validate"), ("PUT", "/v1/worker/jobs/{job}/profile?claim_id=t.r")],
)
def test_a_client_that_leaves_before_its_body_is_complete_is_no_incident(
    client: TestClient, caplog: pytest.LogCaptureFixture, method: str, path: str
) -> None:
    """Each one was logged with two tracebacks, and counted as a failure of the service."""
    job_id = client.post("/v1/jobs", json=JOB).json()["id"]
    client.post(f"/v1/worker/jobs/{job_id}/claim", json={"claim_id": "t.r", "worker": "cpu@here/1"})
    sent: list[Any] = []
    left = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    path, _, query = path.format(job=job_id).partition("?")

    async def receive() -> Any:
        return next(left)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    caplog.clear()
    assert client.portal is not None
    client.portal.call(client.app, scope, receive, send)
    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == [400]
    assert next(left, None) is None, "the body was read"
    assert not caplog.records


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 503), (errno.EDQUOT, 503), (errno.EIO, 500)])
def test_a_full_disk_is_not_the_clients_fault(
    settings: Settings, open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    client = open_client(settings, raise_errors=False)

    def broken(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("deuteron.server.api.worker.tempfile.mkstemp", broken)
    monkeypatch.setattr("deuteron.tuner.records.bundle.tempfile.TemporaryFile", broken)
    job_id = client.post("/v1/jobs", json=JOB).json()["id"]
    client.post(f"/v1/worker/jobs/{job_id}/claim", json={"claim_id": "t.r", "worker": "cpu@here/1"})
    profile = client.put(f"/v1/worker/jobs/{job_id}/profile?claim_id=t.r", content=b"[]")
    for answer in (profile, client.get("/v1/bundles/latest")):
        assert answer.headers["content-type"] == "application/problem+json"
        if status == 503:
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        else:
            assert answer.status_code in (500, 422)


def test_a_full_disk_under_the_database_is_one(client: TestClient) -> None:
    """SQLite has no more pages, as on a disk without room."""
    engine = client.app.state.context.store.database.engine  # type: ignore[attr-defined]

    def allow_no_more(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count={connection.execute('PRAGMA page_count').fetchone()[0]}")

    event.listen(engine, "checkout", allow_no_more)
    kernel = {"name": "add_kernel", "text": KERNEL + "# " + "x" * 200_000 + "\n"}
    answer = client.post("/v1/kernels", json=kernel)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:deuteron:problem:disk-full")


@pytest.mark.parametrize(("code", "kind"), [("53100", "disk-full"), ("57P01", "database-unavailable")])
def test_a_full_disk_under_postgresql(
    settings: Settings, open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, code: str, kind: str
) -> None:
    client = open_client(settings, raise_errors=False)

    def away(*_: object, **__: object) -> None:
        reason = Exception("no")
        reason.sqlstate = code  # type: ignore[attr-defined]
        raise OperationalError("SELECT", {}, reason) from reason

    monkeypatch.setattr("deuteron.server.store.jobs.Jobs.page", away)
    answer = client.get("/v1/jobs")
    assert (answer.status_code, answer.json()["type"]) == (503, f"urn:deuteron:problem:{kind}")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_database_that_takes_no_writes_is_503(
    settings: Settings, open_client: OpenClient, kind: str, request: pytest.FixtureRequest
) -> None:
    """A primary that became a replica was a defect of the service, which nobody is told to come again for."""
    url = str(request.getfixturevalue(f"{kind}_url"))
    client = open_client(replace(settings, database_url=url), raise_errors=False)
    engine = client.app.state.context.store.database.engine  # type: ignore[attr-defined]
    only_reads = "PRAGMA query_only = on" if kind == "sqlite" else "SET default_transaction_read_only = on"

    def close_for_writing(connection: Any, _entry: object) -> None:
        connection.cursor().execute(only_reads)
        if kind == "postgres":
            connection.commit()

    engine.dispose()
    event.listen(engine, "connect", close_for_writing)
    for _ in range(2):
        answer = client.post("/v1/kernels", json={"name": "add_kernel", "text": KERNEL})
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:deuteron:problem:database-read-only")
        assert answer.headers["retry-after"] == "10"
        assert client.get("/v1/jobs").status_code == 200
    event.remove(engine, "connect", close_for_writing)
    # As after the other server became the primary: connections are made anew, where one that reads was still there.
    sent = [client.post("/v1/kernels", json={"name": "add_kernel", "text": KERNEL}) for _ in range(2)]
    assert sent[-1].status_code == 201


def test_a_database_that_is_away_is_503(
    settings: Settings, open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_client(settings, raise_errors=False)

    def away(*_args: object, **_kwargs: object) -> None:
        raise OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr("deuteron.server.store.jobs.Jobs.page", away)
    response = client.get("/v1/jobs")
    assert response.status_code == 503
    assert response.headers["retry-after"]
