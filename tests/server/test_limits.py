"""The limits at the door: allowances on a clock of our own, bodies in many chunks, foreign pages; and of a service."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sent_bodies import JOB

from deuteron.server import Settings
from deuteron.server.auth import CHECKED, CheckedToken
from deuteron.server.hosts import LoopbackOnly
from deuteron.server.limits import FAILURE_BURST, FAILURES_PER_MINUTE, LEAST_UPLOAD_RATE, BodyLimit, RateLimit
from deuteron.server.problems import HttpProblem
from deuteron.server.store.tokens import digest
from deuteron.server.strict_json import read_json

OpenClient = Callable[..., TestClient]
PROFILE = "/v1/worker/jobs/j/profile"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Reads its whole body and answers 200."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def ask(
    app: Any, chunks: list[bytes] | None = None, path: str = "/v1/jobs", method: str = "POST", **headers: str
) -> int:
    """The status of one request."""
    sent: list[Any] = []
    parts = list(chunks or [b""])
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()],
        "client": ("10.0.0.1", 5),
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return int(sent[0]["status"])


@pytest.fixture
def limited(settings: Settings) -> Callable[[int], tuple[RateLimit, Clock]]:
    def make(rate: int) -> tuple[RateLimit, Clock]:
        clock = Clock()
        return RateLimit(_app, replace(settings, rate_per_minute=rate), clock), clock

    return make


def test_an_allowance_refills_and_stops_at_the_burst(limited) -> None:
    app, clock = limited(60)  # one a second, five at once
    assert [ask(app) for _ in range(6)] == [200] * 5 + [429]
    clock.now += 2.0
    assert [ask(app) for _ in range(3)] == [200, 200, 429]
    clock.now += 1000.0
    assert [ask(app) for _ in range(7)] == [200] * 5 + [429] * 2
    clock.now += 0.5
    assert ask(app) == 429
    clock.now += 0.5
    assert ask(app) == 200


@pytest.fixture
def guarded(settings: Settings) -> Callable[[int, set[str]], RateLimit]:
    """A limit in front of an application that accepts some tokens."""

    def make(rate: int, good: set[str]) -> RateLimit:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            headers = dict(scope["headers"])
            secret = headers.get(b"authorization", b"").decode().split(" ")[-1]
            scope[CHECKED] = CheckedToken(digest(secret), is_good=secret in good)
            status = 200 if secret in good else 401
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        return RateLimit(app, replace(settings, rate_per_minute=rate, auth="tokens"), Clock())

    return make


def test_accepted_tokens_have_allowances_of_their_own(guarded) -> None:
    app = guarded(60, {"a", "b"})
    ask(app, authorization="Bearer b")  # now the service knows both
    assert [ask(app, authorization="Bearer a") for _ in range(7)] == [200] * 6 + [429], (
        "one of the address, five of its own"
    )
    assert [ask(app, authorization="Bearer b") for _ in range(6)] == [200] * 5 + [429]
    assert [ask(app, path="/healthz", authorization="Bearer a") for _ in range(3)] == [200] * 3


def test_spellings_of_one_token_share_one_allowance(guarded) -> None:
    app = guarded(60, {"a"})
    spellings = [
        f"{scheme}{' ' * spaces}a" for scheme in ("Bearer", "bearer", "BEARER", "bEARER") for spaces in range(1, 9)
    ]
    answers = [ask(app, authorization=text) for text in spellings]
    assert answers.count(200) == 6, "one of the address, five of the token's own"
    assert set(answers[6:]) == {429}


def test_an_address_is_told_of_only_some_wrong_tokens(guarded) -> None:
    app = guarded(60_000, {"good", "new"})
    assert ask(app, authorization="Bearer good") == 200
    answers = [ask(app, authorization=f"Bearer guess{n}") for n in range(FAILURE_BURST + 5)]
    assert answers == [401] * FAILURE_BURST + [429] * 5
    for token in ("good", "new"):
        assert ask(app, authorization=f"Bearer {token}") == 200, "a token is not punished for its neighbours"
    app._failures._clock.now += 60.0 / FAILURES_PER_MINUTE
    assert [ask(app, authorization=f"Bearer more{n}") for n in range(2)] == [401, 429]


def test_no_rate_is_no_limit(limited) -> None:
    app, _ = limited(0)
    assert {ask(app) for _ in range(50)} == {200}


def test_bodies_are_counted_over_all_their_chunks(settings: Settings) -> None:
    app = BodyLimit(_app, replace(settings, max_body_bytes=2000, max_upload_bytes=4000))
    assert ask(app, [b"x" * 1000] * 2) == 200
    with pytest.raises(HttpProblem) as refused:
        ask(app, [b"x" * 10] * 201)
    assert refused.value.slug == "body-too-large"
    assert ask(app, [b"x" * 1000] * 4, path=PROFILE, method="PUT") == 200
    with pytest.raises(HttpProblem) as refused:
        ask(app, [b"x" * 1000] * 5, path=PROFILE, method="PUT")
    assert "DEUTERON_MAX_UPLOAD_BYTES" in str(refused.value.hint)
    assert ask(app, content_length="2000") == 200
    assert ask(app, content_length="2001") == 413


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/worker/devices"), ("POST", "/v1/worker/jobs/j/events"), ("POST", PROFILE), ("PUT", PROFILE + "/x")],
)
def test_only_profiles_may_be_larger(settings: Settings, method: str, path: str) -> None:
    app = BodyLimit(_app, replace(settings, max_body_bytes=2000, max_upload_bytes=4000))
    assert ask(app, path=path, method=method, content_length="2001") == 413
    assert ask(app, path=PROFILE, method="PUT", content_length="2001") == 200


def test_an_upload_may_take_longer_but_not_for_ever(settings: Settings) -> None:
    """Parts that come within the patience are not enough: at a byte each 256 MiB would take centuries."""
    clock = Clock()

    def ticking(seconds: float) -> Any:
        async def slow(scope: Any, receive: Any, send: Any) -> None:
            async def late() -> Any:
                clock.now += seconds
                await asyncio.sleep(0.01)  # a time that is up counts only for what has to wait
                return await receive()

            await BodyLimit(_app, replace(settings, body_seconds=30), clock)(scope, late, send)

        return slow

    assert ask(ticking(20), [b"x" * 20 * LEAST_UPLOAD_RATE] * 10, path=PROFILE, method="PUT") == 200
    with pytest.raises(HttpProblem) as refused:
        ask(ticking(20), [b"x"] * 10, path=PROFILE, method="PUT")
    assert refused.value.slug == "body-too-slow"


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"host": "localhost:8000"}, 200),
        ({"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost:8000", "origin": "http://evil.example"}, 403),
        ({"host": "localhost:8000", "origin": "http://localhost:9000"}, 403),
        ({"host": "localhost:8000", "origin": "https://localhost:8000"}, 200),
        ({"host": "localhost:8000", "origin": "ftp://localhost:8000"}, 403),
        ({"host": "localhost:8000", "origin": "//localhost:8000"}, 403),
    ],
)
def test_a_service_without_tokens_answers_this_machine_only(settings: Settings, headers, status) -> None:
    assert ask(LoopbackOnly(_app, settings), **headers) == status
    assert ask(LoopbackOnly(_app, replace(settings, auth="tokens")), **headers) == 200


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
