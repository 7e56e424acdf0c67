"""What clients should not send: every answer is a problem document below 500, and nobody waits for ever."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient

from deuteron.compiler import KernelSource
from deuteron.server import Settings, create_app
from deuteron.server.connections import Room
from deuteron.server.listen import bind, server_config
from deuteron.server.problems import MOST_ERRORS, HttpProblem
from deuteron.server.store import ServiceStore
from deuteron.server.strict_json import read_json

JSON = {"Content-Type": "application/json"}


def post(client: TestClient, body: str | bytes, path: str = "/v1/jobs") -> Any:
    return client.post(path, content=body, headers=JSON)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"workload": "softmax", "budget": {"seconds": 1e400}}', "1e400 is larger"),
        ('{"workload": "softmax", "budget": {"seconds": NaN}}', "NaN is not JSON"),
        ('{"workload": "softmax", "seed": -Infinity}', "-Infinity is not JSON"),
        ('{"workload": ' + '{"a":' * 900 + "1" + "}" * 900 + "}", "nested more than 64 levels"),
        ('{"workload": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested more than 64 levels"),
        ('{"workload": "\\ud800"}', "half of a surrogate pair, \\ud800"),
        ('{"workload": {"\\udfff": 1}}', "half of a surrogate pair"),
        ('{"workload": "a\\u0000b"}', "U+0000"),
        ('{"seed": ' + "9" * 5000 + "}", "Exceeds the limit"),
        (b'{"workload": "\xff"}', "byte 14 is not UTF-8"),
        ('{"workload": "softmax", "seed": 1, "seed": 2}', "the name 'seed' twice"),
        ('{"workload": "softmax", "budget": {"trials": 5, "seconds": 1, "trials": 500}}', "the name 'trials' twice"),
        ('{"\\ud800": 1, "\\ud800": 2}', "twice"),
    ],
)
def test_json_that_cannot_be_kept(client: TestClient, body: str | bytes, reason: str) -> None:
    answer = post(client, body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert reason in answer.json()["detail"]


def test_a_name_that_comes_twice_is_found_at_once() -> None:
    """Among many names, the last of which is the second: the reader holds the event loop."""
    names = [f'"{number:x}": 1' for number in range(100_000)]
    started = time.monotonic()
    with pytest.raises(HttpProblem, match="the name '1869f' twice"):
        read_json(("{" + ", ".join([*names, names[-1]]) + "}").encode())
    assert time.monotonic() - started < 5, "counting anew for each name takes minutes"


def test_json_at_the_limits_is_read(client: TestClient) -> None:
    deep: Any = 1
    for _ in range(62):
        deep = [deep]
    answer = post(client, json.dumps({"workload": deep}))
    assert answer.status_code == 422, "read, and then refused for what it says"
    assert post(client, '\ufeff{"workload": "softmax", "seed": 1e0, "budget": {"seconds": 1e300}}').status_code == 202


@pytest.mark.parametrize("cursor", ["é", "\N{ARABIC-INDIC DIGIT ONE}", "AAAA", "gA", "A" * 5000])
def test_cursors_of_strangers(client: TestClient, cursor: str) -> None:
    for path in ("/v1/jobs", "/v1/configs"):
        assert client.get(path, params={"cursor": cursor}).status_code in (200, 400), path


@pytest.mark.parametrize("host", ["[::1", "a b", "::1]:x", "host:port", "x/y", "user@host"])
@pytest.mark.parametrize("auth", ["auto", "tokens"])
def test_hosts_that_are_none(settings: Settings, open_client: Callable[..., TestClient], host: str, auth: Any) -> None:
    client = open_client(replace(settings, auth=auth))
    for path in ("/v1/jobs", "/nothing", "/"):
        answer = client.get(path, headers={"Host": host})
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:deuteron:problem:bad-host")


@pytest.mark.parametrize("origin", ["http://[::1", "http://a:b", "null", "//"])
def test_origins_that_are_none(client: TestClient, origin: str) -> None:
    assert client.get("/v1/jobs", headers={"Origin": origin}).status_code == 403


def test_a_cookie_with_a_broken_origin_is_no_sign_in(
    settings: Settings, open_client: Callable[..., TestClient]
) -> None:
    client = open_client(replace(settings, auth="tokens"))
    client.cookies.set("deuteron_token", "dtn_x")
    answer = client.post("/v1/jobs", json={"workload": "softmax"}, headers={"Origin": "http://[::1"})
    assert answer.status_code == 401


def test_cookies_of_others_are_not_read(settings: Settings, open_client: Callable[..., TestClient]) -> None:
    """Python's reader of cookies takes 20 s for these backslashes; the own cookie counts beside them."""
    client = open_client(replace(settings, auth="tokens"))
    with client.app.state.context.store.write() as tx:  # type: ignore[attr-defined]
        _, secret = tx.tokens.create("test", ["read"])
    trap, own = 'a="' + "\\" * 60_000 + '"', f"deuteron_token={secret}"
    started = time.monotonic()
    for cookie, status in ((trap, 401), (f"{trap};{own}", 200), (f"{own}; {trap}", 200), (f"x{own}; y={own}", 401)):
        assert client.get("/v1/devices", headers={"Cookie": cookie}).status_code == status
    assert client.get("/v1/devices", headers=[("Cookie", own), ("Cookie", trap)]).status_code == 200
    assert time.monotonic() - started < 5


def test_addresses_with_nul(client: TestClient) -> None:
    assert client.get("/v1/jobs/%00").status_code == 400
    assert client.get("/v1/configs?kernel=%00").status_code == 400


def test_functions_that_call_each_other_thousands_deep(client: TestClient) -> None:
    chain = "".join(f"@triton.jit\ndef f{i}(x):\n    return f{i + 1}(x)\n" for i in range(3000))
    text = f"import triton\nimport triton.language as tl\n{chain}@triton.jit\ndef f3000(x):\n    return x\n"
    text += "@triton.jit\ndef k(p):\n    tl.store(p, f0(1))\n"
    assert client.post("/v1/kernels", json={"name": "k", "text": text}).status_code == 201


def test_texts_of_kernels_that_are_traps(client: TestClient) -> None:
    head = "import triton\nimport triton.language as tl\n"
    lines = ["y = 0x" + "f" * 20_000, "y = " + " + ".join(["n"] * 500), "y = n" + ".a" * 500]
    for line in lines:
        text = f"{head}@triton.jit\ndef k(n):\n    {line}\n"
        answer = client.post("/v1/kernels", json={"name": "k", "text": text})
        assert answer.status_code == 422, answer.text[:200]


def test_nobody_waits_for_the_hash_of_a_kernel(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed before the transaction that stores it: writers take turns."""
    inside, real = [], ServiceStore.write

    def writing(store: ServiceStore) -> Any:
        inside.append(True)
        return real(store)

    hashes = KernelSource.hash.fget
    assert hashes is not None
    monkeypatch.setattr(ServiceStore, "write", writing)
    monkeypatch.setattr(KernelSource, "hash", property(lambda source: (inside.clear(), hashes(source))[1]))
    text = "import triton\n@triton.jit\ndef k(p):\n    pass\n"
    assert client.post("/v1/kernels", json={"name": "k", "text": text}).status_code == 201
    assert inside, "it wrote after the last hash"


def test_an_answer_lists_some_errors_and_says_how_many_more_there_are(client: TestClient) -> None:
    fields = {f"{number:x}": 1 for number in range(900)}
    answer = client.post("/v1/configs/lookup", json={"lookups": [fields | {"x" * 10_000: 1}]})
    assert answer.status_code == 422
    problem = answer.json()
    assert (len(problem["errors"]), len(answer.content) < 5000) == (MOST_ERRORS, True)
    assert problem["more_errors"] >= 900 + 1 - MOST_ERRORS
    many = client.post("/v1/configs/lookup", json={"lookups": [fields, fields]})
    assert many.json()["detail"] == "body: 1806 values are wrong, or names unknown", "they are only counted"
    long = client.post("/v1/configs/lookup", json={"lookups": [], "x" * 10_000: 1})
    assert len(long.content) < 2000
    assert "more_errors" not in long.json()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("application/x-www-form-urlencoded", "the body is 'application/x-www-form-urlencoded', not JSON"),
        ("text/plain; charset=utf-8", "the body is 'text/plain; charset=utf-8', not JSON"),
        ("application/vnd.x+json", "the body is 'application/vnd.x+json', not JSON"),
        ('application/json; ; = "', "the body is 'application/json; ; = \"', not JSON"),
        (None, "the body has no Content-Type"),
    ],
)
def test_a_body_of_another_type(client: TestClient, kind: str | None, words: str) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = client.post("/v1/jobs", content='{"workload": "softmax"}', headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == (415, words)
    assert answer.json()["hint"] == "send one JSON document with Content-Type: application/json"
    assert client.post("/v1/jobs").status_code == 422, "there is no body that could have a type"


@pytest.mark.parametrize(
    "kind", ["Application/JSON", 'application/json ; charset="utf-8";', "application/json;a=b; c=d"]
)
def test_parameters_of_the_type_change_nothing(client: TestClient, kind: str) -> None:
    answer = client.post("/v1/jobs", content='{"workload": "softmax"}', headers={"Content-Type": kind})
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize("name", ["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"])
def test_headers_that_count_once_are_given_once(client: TestClient, name: str) -> None:
    """Of two, one reader takes the first and another the last."""
    answer = client.get("/v1/jobs", headers=[(name, "one"), (name.lower(), "two")])
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:deuteron:problem:repeated-header")
    assert answer.json()["detail"] == f"the header {name} is given more than once"


@pytest.mark.parametrize("coding", ["gzip", "identity, br", "GZIP"])
def test_bodies_are_not_unpacked(client: TestClient, coding: str) -> None:
    """Whatever is in them: the same bytes would mean something else."""
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    for content in (gzip.compress(b'{"workload": "softmax"}'), b'{"workload": "softmax"}'):
        answer = client.post("/v1/jobs", content=content, headers=headers)
        assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")
        assert "Content-Encoding" in answer.json()["detail"]
    whole = client.post("/v1/jobs", json={"workload": "softmax"}, headers={"Content-Encoding": "identity"})
    assert whole.status_code == 202
    assert client.get("/v1/jobs", headers={"Content-Encoding": coding}).status_code == 200


def test_parameters_that_nobody_knows(client: TestClient) -> None:
    answer = client.get("/v1/jobs?stat=queued")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "query.stat: /v1/jobs has no such parameter"
    assert answer.json()["hint"] == "did you mean 'state'?"
    assert client.get("/v1/devices?x=1").json()["hint"] == "known: none"
    assert client.get("/v1/jobs?state=queued&limit=5").status_code == 200
    assert client.get("/healthz?probe=1").status_code == 200, "probes add what they like"


# -- with a real server, because these are about connections


@pytest.fixture
def address(
    settings: Settings, open_client: Callable[..., TestClient], wait_until: Callable[..., None]
) -> Iterator[tuple[str, int]]:
    """A server that waits half a second for heads and bodies."""
    settings = replace(settings, port=0, body_seconds=0.5)
    open_client(settings)  # migrates
    listener = bind(settings)
    config = server_config(create_app(settings), settings, Room(100))
    config.lifespan = "off"
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started, 20)
    yield listener.getsockname()[:2]
    server.should_exit = True
    thread.join(10)


def talk(address: tuple[str, int], *parts: bytes, pause_s: float = 0.0) -> tuple[bytes, float]:
    """Send parts with pauses; what came back until the server closed, and after how long."""
    started = time.monotonic()
    with socket.create_connection(address, timeout=10) as connection:
        received = b""
        with suppress(BrokenPipeError, ConnectionResetError):  # it closed while we were still sending
            for part in parts:
                connection.sendall(part)
                time.sleep(pause_s)
        with suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                received += chunk
    return received, time.monotonic() - started


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", "bad-http"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", "bad-http"),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "bad-http"),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "bad-http"),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", "bad-http"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", "head-too-long"),
        (
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "bad-http",
        ),
    ],
)
def test_what_is_no_http_is_answered_as_every_error(address: tuple[str, int], request_: bytes, kind: str) -> None:
    status = 431 if kind == "head-too-long" else 400
    answer, _ = talk(address, request_)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (
        head.startswith(b"HTTP/1.1 %d " % status)
        and b"application/problem+json" in head
        and b"connection: close" in head.lower()
    )
    problem = json.loads(body)  # one answer: what follows it is not read as another request
    assert (problem["status"], problem["type"]) == (status, f"urn:deuteron:problem:{kind}")


@pytest.mark.parametrize(
    ("line", "detail", "hint"),
    [
        (b"OPTIONS * HTTP/1.1\r\nHost: a", "its address is not a path", "ask for a path"),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a:80", "CONNECT is for proxies", "ask for a path"),
        (b"GET http://b/ HTTP/1.1\r\nHost: a", "its address is of another host than Host", "one Host"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked", "is not chunked", "Content-Length"),
    ],
)
def test_what_is_refused_is_told_what_would_do(address: tuple[str, int], line: bytes, detail: str, hint: str) -> None:
    answer, _ = talk(address, line + b"\r\n\r\n")
    problem = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert detail in problem["detail"] and hint in problem["hint"]


def test_there_is_no_websocket(address: tuple[str, int]) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n"
    answer, _ = talk(address, b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n" + upgrade + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 404 ") and b"application/problem+json" in answer


def submitted(address: tuple[str, int]) -> str:
    """The id of a job that will stay in the queue."""
    body = b'{"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}'
    head = (
        "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    made, _ = talk(address, head.encode() + body)
    return str(json.loads(made.split(b"\r\n\r\n", 1)[1])["id"])


def test_half_sent_bodies_are_given_up(address: tuple[str, int]) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    answer, seconds = talk(address, head + b'{"work')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"body-too-slow" in answer and b"DEUTERON_BODY_SECONDS" in answer
    assert seconds < 5
    # Drop by drop is no faster: forty drops would take four seconds.
    _, seconds = talk(address, head, *[b" "] * 40, pause_s=0.1)
    assert seconds < 3


@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\nHost: loc"])
def test_half_sent_heads_are_given_up(address: tuple[str, int], start: bytes) -> None:
    answer, seconds = talk(address, start)
    assert answer == b""
    assert 0.3 < seconds < 5


def test_a_second_head_that_stops_is_given_up(address: tuple[str, int]) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer, seconds = talk(address, whole, b"GET /hea", pause_s=0.1)
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert seconds < 5


def test_answers_may_take_longer_than_bodies(address: tuple[str, int]) -> None:
    """A stream goes on after the time in which a body has to arrive."""
    job = submitted(address)
    with socket.create_connection(address, timeout=1.5) as connection:
        connection.sendall(f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with pytest.raises(TimeoutError):
            while connection.recv(65536):
                pass


def test_head_is_get_without_a_body(address: tuple[str, int]) -> None:
    for path in ("/v1/jobs", "/healthz", "/", "/v1/bundles/latest", "/nothing"):
        request = f"%s {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        head, _ = talk(address, (request % "HEAD").encode())
        whole, _ = talk(address, (request % "GET").encode())
        named = [line for line in whole.split(b"\r\n\r\n")[0].split(b"\r\n") if not line.startswith(b"date")]
        assert [line for line in head.rstrip().split(b"\r\n") if not line.startswith(b"date")] == named, path
        assert head.endswith(b"\r\n\r\n")
    assert talk(address, b"HEAD /v1/configs/lookup HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")[
        0
    ].startswith(b"HTTP/1.1 422")


def test_head_of_a_stream_or_a_large_file_ends(address: tuple[str, int], caplog: pytest.LogCaptureFixture) -> None:
    for path, kind in (
        (f"/v1/jobs/{submitted(address)}/events", "event-stream"),
        ("/static/plotly.min.js", "javascript"),
    ):
        head = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n"
        # The connection is good for another request: nothing went wrong.
        answer, seconds = talk(address, f"{head}\r\n{head}Connection: close\r\n\r\n".encode())
        assert answer.count(b"HTTP/1.1 200") == 2 and answer.count(kind.encode()) == 2
        assert seconds < 5
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
