"""Limits, problem documents, health: what holds for every address."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from deuteron import migrations
from deuteron.compiler.errors import DeuteronError
from deuteron.server import ServiceStore, Settings, SettingsError, serve
from deuteron.server.listen import bind, require_tokens_exist
from deuteron.server.metrics import Metrics
from deuteron.server.strict_json import read_json

OpenClient = Callable[..., TestClient]
JOB = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}


# -- a single user, or tokens


def test_single_user_mode_says_so(
    settings: Settings, open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "deuteron.server"):
        client = open_client(settings)
    assert "single-user mode" in caplog.text
    assert "single user" in client.get("/healthz").json()["auth"]


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_single_user_mode_ignores_requests_made_by_other_sites(client: TestClient, headers: dict[str, str]) -> None:
    response = client.post("/v1/jobs", json=JOB, headers=headers)
    assert response.status_code == 403
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_an_open_address_needs_tokens(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="anyone who reaches this address"):
        Settings(home=tmp_path, host="0.0.0.0", auth="off")
    settings = Settings(home=tmp_path, host="0.0.0.0")
    assert settings.requires_tokens
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    with pytest.raises(SettingsError, match="no administrator's token yet") as caught:
        require_tokens_exist(settings, store)
    assert "deuteron token create" in str(caught.value.hint)
    with store.write() as tx:
        tx.tokens.create("reader", ["read", "submit", "worker"])
        tx.tokens.create("past", ["admin"], expires_at=datetime.now(UTC) - timedelta(seconds=1))
        revoked, _ = tx.tokens.create("gone", ["admin"])
        tx.tokens.revoke(revoked.id)
    with pytest.raises(SettingsError, match="no administrator's token yet"):
        require_tokens_exist(settings, store)
    with store.write() as tx:
        tx.tokens.create("root", ["admin"], expires_at=datetime.now(UTC) + timedelta(hours=1))
    require_tokens_exist(settings, store)
    store.close()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, None),
        ({"auth": "off", "proxies": "10.0.0.1"}, None),
        ({"auth": "tokens"}, "DEUTERON_AUTH asks for tokens"),
        ({"host": "0.0.0.0"}, "0.0.0.0 is reachable from other machines"),
        ({"proxies": "10.0.0.1"}, "DEUTERON_PROXIES lets others in"),
        ({"public_url": "https://configs.example.org"}, "DEUTERON_PUBLIC_URL names configs.example.org"),
        ({"public_url": "http://localhost:8642"}, None),
    ],
)
def test_a_service_says_why_it_wants_tokens(tmp_path: Path, given: dict[str, Any], why: str | None) -> None:
    settings = Settings(home=tmp_path, **given)
    assert settings.why_tokens == why and settings.requires_tokens == (why is not None)
    if why is None:
        return
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    with pytest.raises(SettingsError, match=f"{re.escape(why)}, and there is no administrator's token yet"):
        require_tokens_exist(settings, store)
    store.close()


def test_answers_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    """asyncio sets TCP_NODELAY on accepted sockets only if the listening one names its protocol."""
    with bind(Settings(home=tmp_path, port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_service_that_could_not_measure_or_sign_does_not_say_that_it_listens(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for changed in ({"runner": "nosuch:fn", "scheduler": "embedded"}, {"signing_key": "/nowhere/key.pem"}):
        with pytest.raises(DeuteronError, match=r"nosuch|key\.pem"):
            serve(replace(settings, port=0, **changed))
    assert "listening" not in caplog.text


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    first = bind(Settings(home=tmp_path, port=0))
    first.listen()
    port = first.getsockname()[1]
    with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}"):
        bind(Settings(home=tmp_path, port=port))
    first.close()


# -- limits


def test_large_json_is_read_beside_the_event_loop(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[int] = []

    def noting(body: bytes) -> object:
        readers.append(threading.get_ident())
        return read_json(body)

    loop = client.portal.call(threading.get_ident)
    monkeypatch.setattr("deuteron.server.api.routes.read_json", noting)
    for padding in (0, 100_000):
        body = json.dumps(JOB) + " " * padding
        answer = client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 202
    assert [reader == loop for reader in readers] == [True, False]


def test_body_limit_by_length_and_while_streaming(settings: Settings, open_client: OpenClient) -> None:
    client = open_client(replace(settings, max_body_bytes=2048))
    declared = client.post("/v1/jobs", content=b"x" * 3000)

    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield b"y" * 1000

    streamed = client.post("/v1/jobs", content=chunks(), headers={"Content-Type": "application/json"})
    for response in (declared, streamed):
        assert response.status_code == 413
        assert response.headers["content-type"] == "application/problem+json"
        assert "larger than 2048 bytes" in response.json()["detail"]
        assert "DEUTERON_MAX_BODY_BYTES" in response.json()["hint"]
    assert client.get("/v1/jobs").status_code == 200


def test_rate_limit_per_caller(settings: Settings, open_client: OpenClient) -> None:
    client = open_client(replace(settings, rate_per_minute=60))
    statuses = [client.get("/v1/jobs").status_code for _ in range(8)]
    assert statuses[:5] == [200] * 5
    assert statuses[-1] == 429
    refused = client.get("/v1/jobs")
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["content-type"] == "application/problem+json"
    # No token is checked here, so none makes its bearer somebody else.
    assert client.get("/v1/jobs", headers={"Authorization": "Bearer someone else"}).status_code == 429
    assert client.get("/healthz").status_code == 200


# -- problems


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


# -- kernels

KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr = 128):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask) + tl.load(y_ptr + i, mask), mask)
"""


def test_a_kernel_is_stored_under_its_hash(client: TestClient) -> None:
    made = client.post("/v1/kernels", json={"name": "add_kernel", "text": KERNEL})
    assert made.status_code == 201
    kernel = made.json()
    assert made.headers["location"] == f"/v1/kernels/{kernel['hash']}"
    assert kernel["arguments"][-1] == {"name": "BLOCK", "constexpr": True, "default": "128"}
    assert client.get(made.headers["location"]).json() == kernel
    again = client.post("/v1/kernels", json={"name": "add_kernel", "text": KERNEL + "# note\n"})
    assert again.json()["hash"] == kernel["hash"]


@pytest.mark.parametrize("default", ["float('-inf')", "DEFAULT", "torch.finfo(torch.float32).max"])
def test_defaults_that_a_text_does_not_say_do_no_harm(client: TestClient, default: str) -> None:
    """A search gives the parameter a value."""
    made = client.post("/v1/kernels", json={"name": "add_kernel", "text": KERNEL.replace("= 128", f"= {default}")})
    assert made.status_code == 201, made.text
    assert made.json()["arguments"][-1]["default"] == default


def test_a_kernel_is_never_executed(client: TestClient, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    text = f"open({str(trace)!r}, 'w')\n" + KERNEL
    client.post("/v1/kernels", json={"name": "add_kernel", "text": text})
    assert not trace.exists()


def test_functions_of_compile_time_values_are_never_executed(client: TestClient, tmp_path: Path) -> None:
    """In a program they are Python that runs; of a text that somebody sends they are the kernel language."""
    trace = tmp_path / "trace"
    helper = f"@triton.constexpr_function\ndef early(n):\n    return len(open({str(trace)!r}, 'w').name) + n\n\n"
    text = KERNEL.replace("@triton.jit", helper + "@triton.jit").replace("* BLOCK", "* early(BLOCK)")
    client.post("/v1/kernels", json={"name": "add_kernel", "text": text})
    workload = {
        "kernel": {"name": "add_kernel", "source": text},
        "dims": ["n"],
        "tensors": [
            {"name": "x_ptr", "shape": ["n"]},
            {"name": "y_ptr", "shape": ["n"]},
            {"name": "out_ptr", "shape": ["n"], "role": "output"},
        ],
        "scalars": {"n": "n"},
        "grid": ["cdiv(n, BLOCK)"],
        "space": {"parameters": {"BLOCK": [128]}},
        "bytes": "3 * n * element_bytes",
    }
    job = {"workload": workload, "shapes": [{"n": 256}], "device": "cpu", "budget": {"trials": 2}}
    refused = client.post("/v1/jobs", json=job, headers={"idempotency-key": "early"})
    assert refused.status_code == 422
    assert "the name 'open' is not defined" in refused.text
    assert not trace.exists()


def test_a_bad_kernel_is_shown_with_its_place(client: TestClient) -> None:
    text = KERNEL.replace("mask = i < n", "mask = i << < n")
    response = client.post("/v1/kernels", json={"name": "add_kernel", "text": text, "filename": "add.py"})
    assert response.status_code == 422
    document = response.json()
    assert document["location"]["file"] == "add.py"
    assert document["location"]["line"] == 7
    assert "mask = i << < n" in document["report"]
    assert "^" in document["report"]
    missing = client.post("/v1/kernels", json={"name": "sub_kernel", "text": KERNEL})
    assert missing.status_code == 422
    assert "add_kernel" in missing.json()["hint"]
    assert client.get(f"/v1/kernels/{'0' * 64}").status_code == 404


# -- health


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
