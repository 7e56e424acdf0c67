"""Tokens, limits, problem documents, health: what holds for every address."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from deuteron import migrations
from deuteron.server import ServiceStore, Settings, SettingsError, create_app
from deuteron.server.limits import FAILURE_BURST
from deuteron.server.listen import bind, require_tokens_exist, server_config
from deuteron.server.store.tokens import Tokens
from deuteron.server.strict_json import read_json

OpenClient = Callable[..., TestClient]
JOB = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}


# -- tokens


@pytest.fixture
def guarded(settings: Settings, open_client: OpenClient) -> TestClient:
    return open_client(replace(settings, auth="tokens"))


def make_token(client: TestClient, *scopes: str, expires_at: datetime | None = None) -> str:
    with client.app.state.context.store.write() as tx:  # type: ignore[attr-defined]
        return str(tx.tokens.create("test", scopes, expires_at=expires_at)[1])


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_no_token(guarded: TestClient) -> None:
    response = guarded.get("/v1/jobs")
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "deuteron token create" in response.json()["hint"]


def test_the_embedded_workers_token_is_a_workers_and_no_other_text_is(guarded: TestClient) -> None:
    secret = guarded.app.state.context.internal_token  # type: ignore[attr-defined]
    worker = guarded.post("/v1/worker/devices", json={"worker": "w", "devices": []}, headers=bearer(secret))
    assert worker.status_code not in (401, 403)
    assert guarded.get("/v1/jobs", headers=bearer(secret)).status_code == 200
    assert guarded.get("/v1/tokens", headers=bearer(secret)).status_code == 403
    assert guarded.post("/v1/jobs", json=JOB, headers=bearer(secret)).status_code == 403
    for wrong in (secret[:-1], secret + "x", secret.swapcase(), secret[1:]):
        assert guarded.get("/v1/jobs", headers=bearer(wrong)).status_code == 401


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read", {"read"}),
        ("submit", {"read", "submit"}),
        ("worker", {"read", "worker"}),
        ("admin", {"read", "submit", "worker", "admin"}),
    ],
)
def test_scopes(guarded: TestClient, scope: str, allowed: set[str]) -> None:
    headers = bearer(make_token(guarded, scope))
    announce = {"worker": "w", "devices": []}
    statuses = {
        "read": guarded.get("/v1/jobs", headers=headers).status_code,
        "submit": guarded.post("/v1/jobs", json=JOB, headers=headers).status_code,
        "worker": guarded.post("/v1/worker/devices", json=announce, headers=headers).status_code,
        "admin": guarded.get("/v1/tokens", headers=headers).status_code,
    }
    assert {name for name, status in statuses.items() if status < 300} == allowed
    assert {status for name, status in statuses.items() if name not in allowed} <= {403}


def test_a_token_is_looked_at_before_the_body(guarded: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers cannot make the service read megabytes; a token is looked up once for each request."""
    looked_up: list[str] = []
    check = Tokens.check
    monkeypatch.setattr(Tokens, "check", lambda tokens, secret: (looked_up.append(secret), check(tokens, secret))[1])
    reader, submitter = make_token(guarded, "read"), make_token(guarded, "submit")
    broken = {"content": "{", "headers": {"Content-Type": "application/json"}}
    for path in ("/v1/jobs", "/v1/worker/devices", "/v1/configs/lookup"):
        assert guarded.post(path, **broken).status_code == 401, path
    broken["headers"].update(bearer(reader))
    for path in ("/v1/jobs", "/v1/worker/devices", "/v1/tokens"):
        assert guarded.post(path, **broken).status_code == 403, path
    assert guarded.post("/v1/configs/lookup", **broken).status_code == 400
    assert guarded.post("/v1/jobs", json=JOB, headers=bearer(submitter)).status_code == 202
    assert looked_up == [reader] * 4 + [submitter]


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


def test_expired_unknown_and_revoked(guarded: TestClient) -> None:
    old = make_token(guarded, "read", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    response = guarded.get("/v1/jobs", headers=bearer(old))
    assert response.status_code == 401
    assert "expired at" in response.json()["detail"]
    assert "invalid_token" in response.headers["www-authenticate"]
    assert guarded.get("/v1/jobs", headers=bearer("dtn_x")).status_code == 401

    admin = bearer(make_token(guarded, "admin"))
    made = guarded.post(
        "/v1/tokens",
        json={"name": "ci", "scopes": ["read"], "expires_in_seconds": 60},
        headers=admin,
    )
    assert made.status_code == 201
    token = made.json()["token"]
    assert guarded.get("/v1/jobs", headers=bearer(token)).status_code == 200
    listed = guarded.get("/v1/tokens", headers=admin)
    assert token not in listed.text
    assert "ci" in [item["name"] for item in listed.json()["tokens"]]
    assert guarded.delete(f"/v1/tokens/{made.json()['id']}", headers=admin).status_code == 200
    assert guarded.get("/v1/jobs", headers=bearer(token)).status_code == 401


def test_idempotency_keys_of_two_callers_do_not_meet(guarded: TestClient) -> None:
    ids = {
        guarded.post(
            "/v1/jobs",
            json=JOB,
            headers={**bearer(make_token(guarded, "submit")), "Idempotency-Key": "same"},
        ).json()["id"]
        for _ in range(2)
    }
    assert len(ids) == 2


def test_a_cookie_reads_but_does_not_let_other_sites_write(guarded: TestClient) -> None:
    page = guarded.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (page.status_code, page.headers["location"]) == (303, "/login")
    wrong = guarded.post("/login", content="token=nope")
    assert wrong.status_code == 401
    assert 'role="alert"' in wrong.text
    signed_in = guarded.post("/login", content=f"token={make_token(guarded, 'admin')}", follow_redirects=False)
    cookie = signed_in.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert guarded.get("/").status_code == 200
    assert guarded.post("/v1/jobs", json=JOB).status_code == 401
    foreign = {"Origin": "http://evil.example"}
    assert guarded.post("/v1/jobs", json=JOB, headers=foreign).status_code == 401
    own = {"Origin": "http://localhost"}
    assert guarded.post("/v1/jobs", json=JOB, headers=own).status_code == 202


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
        tx.tokens.create("root", ["admin"])
    require_tokens_exist(settings, store)
    store.close()


def test_answers_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    """asyncio sets TCP_NODELAY on accepted sockets only if the listening one names its protocol."""
    with bind(Settings(home=tmp_path, port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    first = bind(Settings(home=tmp_path, port=0))
    first.listen()
    port = first.getsockname()[1]
    with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}"):
        bind(Settings(home=tmp_path, port=port))
    first.close()


# -- limits


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
    assert client.get("/v1/jobs", headers=bearer("someone else")).status_code == 429
    assert client.get("/healthz").status_code == 200


@pytest.fixture
def slow_guesses(settings: Settings, open_client: OpenClient) -> TestClient:
    return open_client(replace(settings, auth="tokens", rate_per_minute=60_000), raise_errors=False)


def guess_as(client: TestClient, way: str, token: str) -> int:
    """The status of a request that shows a token in one of the ways in which there are."""
    if way == "login":
        return client.post("/login", content=f"token={token}", follow_redirects=False).status_code
    headers = bearer(token) if way == "bearer" else {"Cookie": f"deuteron_token={token}"}
    accept = {"Accept": "text/html"} if way == "page" else {}
    path = "/" if way == "page" else "/v1/devices"
    return client.get(path, headers={**headers, **accept}, follow_redirects=False).status_code


@pytest.mark.parametrize("way", ["bearer", "cookie", "page", "login"])
def test_wrong_tokens_are_limited_and_lock_nobody_out(slow_guesses: TestClient, way: str) -> None:
    guesses = [guess_as(slow_guesses, way, f"dtn_guess{n}") for n in range(FAILURE_BURST + 5)]
    assert set(guesses[:FAILURE_BURST]) == {303 if way == "page" else 401}
    assert guesses[FAILURE_BURST:] == [429] * 5
    neighbour = make_token(slow_guesses, "read")
    for other in ("bearer", "cookie", "page", "login"):
        assert guess_as(slow_guesses, other, neighbour) in (200, 303)
    assert guess_as(slow_guesses, way, "dtn_guess") == 429


@pytest.mark.parametrize(("proxies", "statuses"), [("", {401, 429}), ("10.0.0.0/8,127.0.0.1", {401})])
def test_only_proxies_that_are_named_say_where_requests_come_from(
    settings: Settings, proxies: str, statuses: set[int]
) -> None:
    """uvicorn by itself believes every program on this host."""
    settings = replace(settings, auth="tokens", rate_per_minute=60_000, proxies=proxies)
    migrations.upgrade(settings.database_url)
    config = server_config(create_app(settings), settings)
    config.load()
    with TestClient(config.loaded_app, base_url="http://localhost", client=("127.0.0.1", 5)) as client:
        answers = [
            client.get("/v1/devices", headers={**bearer(f"guess{n}"), "X-Forwarded-For": f"192.0.2.{n}"}).status_code
            for n in range(FAILURE_BURST + 5)
        ]
    assert set(answers) == statuses


@pytest.mark.parametrize(
    ("host", "proxies", "is_secure"),
    [("localhost", "", False), ("localhost", "127.0.0.1", True), ("tuner.example", "", True)],
)
def test_the_cookie_is_for_https_where_browsers_come_by_it(
    settings: Settings, host: str, proxies: str, is_secure: bool
) -> None:
    settings = replace(settings, auth="tokens", proxies=proxies, public_url="https://tuner.example")
    migrations.upgrade(settings.database_url)
    config = server_config(create_app(settings), settings)
    config.load()
    with TestClient(config.loaded_app, base_url=f"http://{host}", client=("127.0.0.1", 5)) as client:
        with ServiceStore.open(settings.database_url).write() as tx:
            _, secret = tx.tokens.create("test", ["read"])
        answer = client.post(
            "/login", content=f"token={secret}", headers={"X-Forwarded-Proto": "https"}, follow_redirects=False
        )
    assert ("secure" in answer.headers["set-cookie"].lower()) is is_secure


def test_a_token_that_nobody_looked_at_has_no_allowance(settings: Settings, open_client: OpenClient) -> None:
    client = open_client(replace(settings, auth="tokens", rate_per_minute=60))
    statuses = [client.get("/login", headers=bearer(f"made-up{n}")).status_code for n in range(6)]
    statuses += [client.get("/login", headers=bearer("made-up0")).status_code]
    assert statuses == [200] * 5 + [429] * 2


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
    for answer in (client.put(f"/v1/worker/jobs/{job_id}/profile", content=b"[]"), client.get("/v1/bundles/latest")):
        assert answer.headers["content-type"] == "application/problem+json"
        if status == 503:
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        else:
            assert answer.status_code in (500, 422)


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


def test_a_kernel_is_never_executed(client: TestClient, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    text = f"open({str(trace)!r}, 'w')\n" + KERNEL
    client.post("/v1/kernels", json={"name": "add_kernel", "text": text})
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


def test_openapi_describes_every_address(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    operations = [(path, operation) for path, methods in document["paths"].items() for operation in methods.values()]
    assert len(operations) >= 25
    assert [path for path, operation in operations if not operation.get("summary")] == []
    job = document["components"]["schemas"]["JobBody"]
    assert job["examples"][0]["workload"] == "softmax"
    assert [name for name, field in job["properties"].items() if "description" not in field] == []
