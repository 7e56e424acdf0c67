"""Upstreams that dribble, hang, swell or fail in ways of their own: own answers go on, in time and in little memory."""

from __future__ import annotations

import gzip
import io
import shutil
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from deuteron.server import Settings, upstream
from deuteron.server.configs import put_record
from deuteron.server.metrics import Metrics
from deuteron.server.upstream import Upstream, patience_in
from deuteron.tuner import ConfigRecord, write_bundle
from deuteron.tuner.fetch import Fetcher, FetchLimits
from deuteron.tuner.http import ServiceUnreachable
from deuteron.tuner.records.signature import SigningKey
from deuteron.tuner.records.trust import KeyFolder

KERNEL = "ab" * 32
Peer = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def listen() -> Iterator[Callable[[Peer], str]]:
    """``listen(answer)``: the address of a service that answers each connection by a function of its socket."""
    stop = threading.Event()
    sockets = list[socket.socket]()

    def go(answer: Peer) -> str:
        server = socket.create_server(("127.0.0.1", 0), backlog=64)
        sockets.append(server)

        def serve(client: socket.socket) -> None:
            with client:
                try:
                    client.recv(65536)
                    answer(client)
                    stop.wait(30)
                except OSError:
                    pass

        def accept() -> None:
            while not stop.is_set():
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield go
    stop.set()
    for server in sockets:
        server.close()


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Upstream]]:
    """Upstreams with little patience."""
    monkeypatch.setattr(upstream, "ANSWER_S", 0.3)
    monkeypatch.setattr(upstream, "TOTAL_S", 0.6)
    made = list[Upstream]()

    def go(url: str) -> Upstream:
        made.append(Upstream(url, KeyFolder(tmp_path / "keys"), tmp_path, Metrics()))
        return made[-1]

    yield go
    for item in made:
        item.close()


def drip(pieces: Iterator[bytes]) -> Peer:
    """Sends a piece every 50 ms, for 30 s."""

    def answer(client: socket.socket) -> None:
        for _ in range(600):
            client.sendall(next(pieces))
            time.sleep(0.05)

    return answer


def heads() -> Iterator[bytes]:
    yield OK
    while True:
        yield b"X-A: b\r\n"


def empty_blocks() -> Iterator[bytes]:
    """Chunks of gzip that decode to nothing."""
    first = zlib.compressobj(wbits=31).flush(zlib.Z_SYNC_FLUSH)
    yield OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield b"%x\r\n%s\r\n" % (len(first), first)
    while True:
        yield b"5\r\n\x00\x00\x00\xff\xff\r\n"


@pytest.mark.parametrize("pieces", [heads, empty_blocks])
def test_one_that_dribbles_is_left_in_time(
    listen: Callable[[Peer], str],
    asking: Callable[[str], Upstream],
    pieces: Callable[[], Iterator[bytes]],
    wait_until: Callable[..., None],
):
    asked = asking(listen(drip(pieces())))
    started = time.monotonic()
    assert asked.ask(KERNEL, patience_s=0.3).state == "unreachable"
    assert asked.ask("cd" * 32, patience_s=0.3).state == "unreachable", "and left alone"
    assert time.monotonic() - started < 2
    wait_until(lambda: not asked._requests, 5)
    assert asked._waiting == 0


def test_few_wait_for_one_that_hangs(listen: Callable[[Peer], str], asking: Callable[[str], Upstream]):
    asked = asking(listen(lambda client: None))
    took = list[float]()

    def ask(number: int) -> None:
        started = time.monotonic()
        assert asked.ask(f"{number:064x}", patience_s=0.29).state == "unreachable"
        took.append(time.monotonic() - started)

    with ThreadPoolExecutor(30) as pool:
        list(pool.map(ask, range(30)))
    assert sum(seconds > 0.25 for seconds in took) == upstream.MOST_AT_ONCE


def test_a_service_goes_on_while_its_upstream_dribbles(
    listen: Callable[[Peer], str], live_service: Callable[..., str], tmp_path: Path
):
    """With more lookups than threads. Everything else is answered meanwhile."""
    url = live_service(tmp_path / "home", upstream=listen(drip(heads())))

    def look(number: int) -> int:
        asked = {"kernel": f"{number:064x}", "device": "cpu", "shape": "M=1"}
        return httpx.get(f"{url}/v1/configs/lookup", params=asked, timeout=30).status_code

    with ThreadPoolExecutor(45) as pool:
        lookups = [pool.submit(look, number) for number in range(45)]
        time.sleep(0.3)
        started = time.monotonic()
        for path in ("/readyz", "/v1/jobs"):
            assert httpx.get(url + path, timeout=30).status_code == 200
        assert time.monotonic() - started < 2.5
        assert {future.result() for future in lookups} == {200}


def test_one_request_for_a_kernel_at_a_time(
    listen: Callable[[Peer], str],
    asking: Callable[[str], Upstream],
    make_record: Callable[..., ConfigRecord],
    tmp_path: Path,
):
    """Who asks here waits for it; what comes from another service does not, since that one may wait for us."""
    made = make_record({"M": 1}, kernel_hash=KERNEL)
    write_bundle(tmp_path / "made", [made], service="http://company", sign_with=SigningKey.generate())
    body = gzip.compress((tmp_path / "made").read_bytes())
    connections, goes = list[socket.socket](), threading.Event()

    def answer(client: socket.socket) -> None:
        connections.append(client)
        goes.wait(10)
        client.sendall(OK + b'ETag: "a"\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n' % len(body) + body)

    asked = asking(listen(answer))
    asked._fetcher._limits = upstream.FetchLimits(1, 10, 10, 1 << 20)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(asked.ask, KERNEL, patience_s=10) for _ in range(4)]
        while not connections:
            time.sleep(0.01)
        passed = asked.pass_on(KERNEL, ("0" * 16,), 10)
        assert passed is not None and passed.state == "unreachable"
        goes.set()
        assert [len(item.result().part.records) for item in answers] == [1] * 4
    assert len(connections) == 1


def body_of(size: int, encoding: str) -> bytes:
    body = bytes(size)
    for _ in encoding.split(","):
        body = gzip.compress(body)
    head = f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
    return OK + head.encode() + body


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip"])
def test_one_that_swells_is_refused(
    listen: Callable[[Peer], str],
    asking: Callable[[str], Upstream],
    encoding: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(upstream, "MOST_BYTES", 1 << 20)
    answer = body_of(4 << 20, encoding)
    assert asking(listen(lambda client: client.sendall(answer))).ask(KERNEL, patience_s=5).state == "unreachable"
    assert ("more than 1048576 bytes" if encoding == "gzip" else "encoded in 'gzip, gzip'") in caplog.text


def test_an_endless_refusal_is_not_read(listen: Callable[[Peer], str], asking: Callable[[str], Upstream]):
    sent = list[int]()

    def answer(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(4000):
            client.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")
            sent.append(65536)

    assert asking(listen(answer)).ask(KERNEL, patience_s=5).state == "refused"
    assert sum(sent) < 64 << 20


def test_own_answers_are_not_lost_to_any_error(
    client_with_upstream: Callable[[str], TestClient],
    listen: Callable[[Peer], str],
    make_record: Callable[..., ConfigRecord],
    monkeypatch: pytest.MonkeyPatch,
):
    async def fail(*_arguments: object) -> None:
        raise ValueError("of nobody's making")

    client = client_with_upstream(listen(lambda client: None))
    context = client.app.state.context  # type: ignore[attr-defined]
    with context.store.write() as tx:
        put_record(tx, make_record({"M": 8}, kernel_hash=KERNEL), None)
    asked = {"kernel": KERNEL, "device": "cpu", "shape": "M=9"}
    monkeypatch.setattr(Fetcher, "get", fail)
    found = client.get("/v1/configs/lookup", params=asked).json()
    assert (found["match"], found["upstream"]) == ("nearest_shape", "unreachable")
    monkeypatch.undo()
    assert context.upstream._closed_until[0] > time.monotonic(), "and it is left alone"
    context.upstream._closed_until = (0.0, "reached")
    shutil.rmtree(context.settings.home / "upstream")
    found = client.get("/v1/configs/lookup", params=asked).json()
    assert (found["match"], found["upstream"]) == ("nearest_shape", "unreachable")


def test_a_head_has_its_own_time(listen: Callable[[Peer], str]):
    """All of a large bundle may take minutes."""
    url = listen(drip(heads()))
    fetcher = Fetcher(url, FetchLimits(connect_s=10, head_s=0.2, total_s=3600, most_bytes=1 << 20))
    with pytest.raises(ServiceUnreachable, match="did not answer in time"):
        fetcher.start(fetcher.get("/", {}, {}, io.BytesIO())).result(timeout=60)
    fetcher.close()


@pytest.fixture
def client_with_upstream(settings: Settings, open_client: Callable[..., TestClient]) -> Callable[[str], TestClient]:
    from dataclasses import replace

    return lambda url: open_client(replace(settings, upstream=url))


def test_a_middle_service_answers_while_the_far_one_hangs(
    listen: Callable[[Peer], str],
    live_service: Callable[..., str],
    make_record: Callable[..., ConfigRecord],
    tmp_path: Path,
):
    """It waits for less than the one that asked it does."""
    from deuteron.server import ServiceStore

    middle = live_service(tmp_path / "middle", upstream=listen(lambda client: None))
    store = ServiceStore.open(f"sqlite:///{tmp_path / 'middle' / 'deuteron.db'}")
    with store.write() as tx:
        put_record(tx, make_record({"M": 8}, kernel_hash=KERNEL), None)
    store.close()
    near = live_service(tmp_path / "near", upstream=middle)
    found = httpx.get(
        f"{near}/v1/configs/lookup", params={"kernel": KERNEL, "device": "cpu", "shape": "M=8"}, timeout=30
    ).json()
    assert (found["match"], found["upstream"]) == ("exact", "reached")


def test_patience_that_is_told_only_shortens_the_wait():
    assert [patience_in({"Deuteron-Patience": text}) for text in ("1.5", "99", "-1", "nan", "inf", "x")] == [
        1.5,
        upstream.ANSWER_S,
        0.0,
        upstream.ANSWER_S,
        upstream.ANSWER_S,
        upstream.ANSWER_S,
    ]
    assert patience_in({}) == upstream.ANSWER_S
