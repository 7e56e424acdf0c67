"""Tokens: who is let in, by header and cookie, how long, and how often somebody may guess."""

from __future__ import annotations

import asyncio
import itertools
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi import Request
from fastapi.testclient import TestClient
from sqlalchemy import update

from deuteron import migrations
from deuteron.server import ServiceStore, Settings, create_app
from deuteron.server.api.events import follow
from deuteron.server.auth import SINGLE_USER, Principal
from deuteron.server.connections import Room
from deuteron.server.limits import FAILURE_BURST
from deuteron.server.listen import server_config
from deuteron.server.models import TokenRow
from deuteron.server.pages.jobs import live_jobs
from deuteron.server.store.tokens import Tokens

OpenClient = Callable[..., TestClient]
JOB = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}
SCOPES = ("read", "submit", "worker", "admin")


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


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\u202eabc"])
def test_names_of_tokens_are_of_printable_text(client: TestClient, name: str) -> None:
    """A line of the list was what a name said it was."""
    refused = client.post("/v1/tokens", json={"name": name, "scopes": ["read"]})
    assert refused.status_code == 422 and "has a control character" in refused.json()["detail"]
    assert client.get("/v1/tokens").json() == {"tokens": []}


def test_a_token_of_two_scopes_may_do_what_either_may(guarded: TestClient) -> None:
    headers = bearer(make_token(guarded, "submit", "worker"))
    assert guarded.post("/v1/jobs", json=JOB, headers=headers).status_code == 202
    announced = guarded.post("/v1/worker/devices", json={"worker": "w", "devices": []}, headers=headers)
    assert announced.status_code < 300
    assert guarded.get("/v1/tokens", headers=headers).status_code == 403


@pytest.mark.parametrize("size", range(5))
def test_what_a_caller_may_is_what_its_scopes_are_for(size: int) -> None:
    implied = {"read": {"read"}, "submit": {"submit", "read"}, "worker": {"worker", "read"}, "admin": set(SCOPES)}
    for own in itertools.combinations(SCOPES, size):
        caller = Principal("id", "name", frozenset(own))
        allowed = set[str]().union(*(implied[scope] for scope in own))
        assert {scope for scope in (*SCOPES, "nonsense") if caller.may(scope)} == allowed


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


def still_open(address: str, app: Any, secret: str) -> Any:
    """A request for a stream whose caller never leaves."""

    async def receive() -> Any:
        await asyncio.sleep(60)

    headers = [(b"authorization", f"Bearer {secret}".encode())]
    scope = {"type": "http", "method": "GET", "path": address, "query_string": b"", "headers": headers, "app": app}
    return Request(scope, receive)


@pytest.mark.parametrize("ending", ["expired", "revoked"])
@pytest.mark.parametrize("address", ["/v1/jobs/{}/events", "/live/jobs"])
def test_a_stream_ends_with_its_token(
    settings: Settings, open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, address: str, ending: str
) -> None:
    monkeypatch.setattr("deuteron.server.pages.jobs._LIVE_QUIET_ROUNDS", 1)
    monkeypatch.setattr("deuteron.server.pages.jobs._LIVE_PAUSE_S", 0.02)
    app = open_client(replace(settings, auth="tokens", heartbeat_seconds=0.05)).app
    context = app.state.context  # type: ignore[attr-defined]
    with context.store.write() as tx:
        token, secret = tx.tokens.create("leaver", ["submit"])
    with TestClient(app, base_url="http://localhost") as client:
        job_id = client.post("/v1/jobs", json=JOB, headers=bearer(secret)).json()["id"]

    async def scene() -> int:
        request = still_open(address, app, secret)
        if address == "/live/jobs":
            stream = live_jobs(request, context, SINGLE_USER).body_iterator
        else:
            stream = follow(request, job_id, context, SINGLE_USER).body_iterator  # type: ignore[attr-defined]
        count = 0
        async for _ in stream:
            count += 1
            if count == 6:
                with context.store.write() as tx:
                    if ending == "revoked":
                        tx.tokens.revoke(token.id)
                    else:
                        past = datetime.now(UTC) - timedelta(seconds=1)
                        tx.tokens.connection.execute(update(TokenRow).values(expires_at=past))
        return count

    assert 6 <= asyncio.run(asyncio.wait_for(scene(), 20)) <= 12, "it goes on while the token is good, and then ends"


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


def test_signing_in_keeps_no_more_than_a_token_of_what_is_sent(guarded: TestClient) -> None:
    """Whoever had no token could have the service keep megabytes for each connection."""
    sent: list[Any] = []
    pieces = itertools.chain([b"token=nope&"], itertools.repeat(b"x" * 65536, 60))
    messages = ({"type": "http.request", "body": piece, "more_body": True} for piece in pieces)

    async def receive() -> Any:
        return next(messages, {"type": "http.request", "body": b"", "more_body": False})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": "POST"}
    scope |= {"path": "/login", "raw_path": b"/login", "query_string": b"", "headers": [(b"host", b"localhost")]}
    scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
    assert guarded.portal is not None
    tracemalloc.start()
    try:
        guarded.portal.call(guarded.app, scope, receive, send)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sent[0]["status"] == 401
    assert next(messages, None) is None, "all was taken"
    assert peak < 1 << 20


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


@pytest.mark.parametrize(
    ("origin", "public_url", "is_allowed"),
    [
        (None, "", True),
        ("http://localhost", "", True),
        ("https://localhost", "", True),  # behind a proxy that speaks TLS
        ("http://localhost", "https://tuner.example", True),  # from this machine, past the proxy
        ("https://tuner.example", "https://tuner.example", True),  # behind a proxy that changes Host
        ("http://tuner.example", "https://tuner.example", False),
        ("http://evil.example", "", False),
        ("http://localhost:8080", "", False),
        ("chrome-extension://localhost", "", False),
        ("http://localhost", "https://localhost", False),
        ("null", "", False),
    ],
)
def test_pages_elsewhere_sign_nobody_in_or_out(
    settings: Settings, open_client: OpenClient, origin: str | None, public_url: str, is_allowed: bool
) -> None:
    client = open_client(replace(settings, auth="tokens", public_url=public_url))
    headers = {} if origin is None else {"Origin": origin}
    form = f"token={make_token(client, 'submit')}"
    signed_in = client.post("/login", content=form, headers=headers, follow_redirects=False)
    assert signed_in.status_code == (303 if is_allowed else 403)
    assert ("set-cookie" in signed_in.headers) is is_allowed
    client.cookies.set("deuteron_token", form.removeprefix("token="))
    if origin is not None:
        assert client.post("/v1/jobs", json=JOB, headers=headers).status_code == (202 if is_allowed else 401)
    signed_out = client.post("/logout", headers=headers, follow_redirects=False)
    assert ("set-cookie" in signed_out.headers) is is_allowed
    if not is_allowed:
        assert signed_out.json()["type"] == "urn:deuteron:problem:foreign-origin"


@pytest.mark.parametrize("way", ["bearer", "cookie", "page", "login"])
def test_wrong_tokens_are_limited_and_lock_nobody_out(slow_guesses: TestClient, way: str) -> None:
    guesses = [guess_as(slow_guesses, way, f"dtn_guess{n}") for n in range(FAILURE_BURST + 5)]
    assert set(guesses[:FAILURE_BURST]) == {303 if way == "page" else 401}
    assert guesses[FAILURE_BURST:] == [429] * 5
    neighbour = make_token(slow_guesses, "read")
    for other in ("bearer", "cookie", "page", "login"):
        assert guess_as(slow_guesses, other, neighbour) in (200, 303)
    assert guess_as(slow_guesses, way, "dtn_guess") == 429


def test_a_token_that_has_ended_is_forgiven_once(slow_guesses: TestClient) -> None:
    """Its owner need not know yet; what goes on with it is a guess as any other."""
    secret = make_token(slow_guesses, "read")
    assert guess_as(slow_guesses, "bearer", secret) == 200
    store = slow_guesses.app.state.context.store  # type: ignore[attr-defined]
    with store.write() as tx:
        (token,) = tx.tokens.all()
        tx.tokens.revoke(token.id)
    guesses = [guess_as(slow_guesses, "bearer", secret) for _ in range(FAILURE_BURST + 3)]
    assert guesses == [401] * (FAILURE_BURST + 1) + [429] * 2


@pytest.mark.parametrize(("proxies", "statuses"), [("", {401, 429}), ("10.0.0.0/8,127.0.0.1", {401})])
def test_only_proxies_that_are_named_say_where_requests_come_from(
    settings: Settings, proxies: str, statuses: set[int]
) -> None:
    """uvicorn by itself believes every program on this host."""
    settings = replace(settings, auth="tokens", rate_per_minute=60_000, proxies=proxies)
    migrations.upgrade(settings.database_url)
    config = server_config(create_app(settings), settings, Room(100))
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
    config = server_config(create_app(settings), settings, Room(100))
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
