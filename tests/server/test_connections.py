"""Connections have an end, whatever their clients do: there are never too many, and nobody has one by not reading."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from deuteron.server import connections
from deuteron.server.connections import LEAST_TAKEN, MOST_DESCRIPTORS, Room, Taking, raise_descriptor_limit
from deuteron.server.protocol import patient_protocol
from deuteron.server.serving import ServiceServer, is_no_cancellation

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LARGE = 24 << 20  # more than the buffers of a connection hold


class Transport:
    """One that is only closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self.name, self._closed = name, closed

    def abort(self) -> None:
        self._closed.append(self.name)


def test_whoever_says_nothing_makes_room() -> None:
    room, closed = Room(3), list[str]()
    a, b, c, d, e, f = (cast("asyncio.Transport", Transport(name, closed)) for name in "abcdef")
    for one in (a, b, c):
        room.enter(one)
    room.works(a)  # is waited for
    room.enter(d)
    assert closed == ["b"]
    room.waits(c)  # said something
    room.enter(e)
    assert closed == ["b", "d"]
    room.waits(d)  # is closed already
    room.works(c)
    room.works(e)
    room.enter(f)
    assert closed == ["b", "d", "f"], "all others wait for their answers"
    room.waits(a)
    room.leave(c)
    room.enter(b)
    assert closed == ["b", "d", "f"]


class Clock:
    """A loop with one timer at most, whose time passes when a test says so."""

    def __init__(self) -> None:
        self.now, self.due = 0.0, list[tuple[float, Callable[[], None]]]()

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        assert not self.due
        self.due.append((self.now + seconds, call))


class Reader(Transport):
    """The other end of a connection: what it has taken of what was written."""

    def __init__(self, closed: list[str]) -> None:
        super().__init__("it", closed)
        self.taken: int | None = 0
        self.left = 1

    def get_write_buffer_size(self) -> int:
        return self.left

    def get_extra_info(self, _name: str) -> None:
        return None


@pytest.mark.parametrize(
    ("taken", "left", "closed_at"),
    [
        (lambda look: 0, lambda look: 1, 8),
        (lambda look: look * LEAST_TAKEN // 9, lambda look: 1, 8),
        (lambda look: look * LEAST_TAKEN // 8, lambda look: 1, None),
        (lambda look: look * LEAST_TAKEN, lambda look: 1, None),
        (lambda look: 4 * LEAST_TAKEN * (look >= 4), lambda look: 1, 12),
        (lambda look: 0, lambda look: int(look < 3), None),  # all is under way: what the client does next is its own
        (lambda look: None, lambda look: 1, None),
    ],
    ids=["nothing", "too little", "enough", "more", "nothing more", "no more is there", "nobody knows"],
)
def test_who_takes_too_little_of_what_is_there_is_left(
    monkeypatch: pytest.MonkeyPatch,
    taken: Callable[[int], int | None],
    left: Callable[[int], int],
    closed_at: int | None,
) -> None:
    """Looked at eight times in the seconds that are given."""
    closed, clock = list[str](), Clock()
    reader = Reader(closed)
    monkeypatch.setattr(connections, "acknowledged", lambda transport: transport.taken)
    taking = Taking(cast("asyncio.Transport", reader), cast("asyncio.AbstractEventLoop", clock), 8.0)
    reader.taken, reader.left = taken(0), left(0)
    taking.begin()
    for look in range(1, 30):
        reader.taken, reader.left = taken(look), left(look)
        if clock.due:
            clock.now, call = clock.due.pop()
            call()
        if closed:
            break
    assert (look if closed else None) == closed_at
    assert bool(clock.due) == (closed_at is None and left(29) > 0 and taken(29) is not None)


def test_a_shortage_is_said_once_a_minute_and_makes_room_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    room, closed = Room(100), list[str]()
    for number in range(40):
        room.enter(cast("asyncio.Transport", Transport(str(number), closed)))
    with caplog.at_level(logging.WARNING, "deuteron.server"):
        for _ in range(1000):
            room.note_shortage()
    assert closed == [str(number) for number in range(20)]
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["40"]


def test_the_limit_of_descriptors_is_raised_to_what_is_allowed() -> None:
    code = "from deuteron.server.connections import raise_descriptor_limit as r; print(r()); print(r())"
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4096)
    run = subprocess.run(
        ["bash", "-c", f'ulimit -Sn 200; ulimit -Hn {hard}; "$0" -c "$1"', sys.executable, code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert run.stdout.split() == [str(hard)] * 2
    assert raise_descriptor_limit() <= MOST_DESCRIPTORS


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Many bytes, as a file is sent; at /whole as a page is."""
    await receive()
    size = LARGE if scope["path"] != "/little" else 0
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    part = size if scope["path"] == "/whole" else min(size, 64 << 10)
    for at in range(0, size, part or 1):
        await send({"type": "http.response.body", "body": bytes(part), "more_body": at + part < size})
    if not size:
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def serve(wait_until: Callable[..., None]) -> Iterator[Callable[[Room, float], tuple[str, int]]]:
    """Serves :func:`answer` with room for connections and patience in seconds."""
    with ExitStack() as stack:

        def start(room: Room, seconds: float) -> tuple[str, int]:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            config = uvicorn.Config(
                answer, http=patient_protocol(seconds, room), lifespan="off", ws="none", log_config=None
            )
            server = ServiceServer(config, room, nothing_to_end)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(setattr, server, "should_exit", True)
            wait_until(lambda: server.started, 20)
            return listener.getsockname()[:2]

        yield start


async def nothing_to_end() -> None: ...


def connect(address: tuple[str, int], said: bytes = b"", buffer: int = 4096) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(20)
    connection.connect(address)
    connection.sendall(said)
    return connection


def read_slowly(connection: socket.socket, part: int, pause: float, seconds: float) -> tuple[int, bool]:
    """How many bytes came, and whether the other end closed the connection meanwhile."""
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            received = len(connection.recv(part))
        except ConnectionResetError:
            return count, True
        if not received:
            return count, True
        count += received
        time.sleep(pause)
    return count, False


def test_idle_connections_leave_room_for_others(serve: Any) -> None:
    address = serve(Room(10), 60.0)
    with ExitStack() as stack:
        busy = stack.enter_context(connect(address, GET))
        assert busy.recv(100).startswith(b"HTTP/1.1 200 ")
        for number in range(50):
            stack.enter_context(connect(address, b"GET / HTTP/1.1\r\n" if number % 2 else b""))
        with connect(address, GET.replace(b"/", b"/little", 1)) as other:
            assert other.recv(100).startswith(b"HTTP/1.1 200 ")
        assert not read_slowly(busy, 4096, 0, 0.2)[1], "it is being answered"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what was taken")
@pytest.mark.parametrize("path", [b"/", b"/whole"])
def test_readers_that_do_not_read_are_left(serve: Any, path: bytes) -> None:
    """Not those that are slow: the least is 64 KiB in the time that a request may take."""
    seconds = 2.0
    address = serve(Room(10), seconds)
    with ExitStack() as stack:
        request_ = GET.replace(b"/", path, 1)
        hardly, slow = (stack.enter_context(connect(address, request_, buffer=16384)) for _ in "ab")
        told: dict[str, tuple[int, bool]] = {}
        least = LEAST_TAKEN / seconds
        slowly = threading.Thread(
            target=lambda: told.update(slow=read_slowly(slow, int(least * 3 * 0.05), 0.05, 4 * seconds))
        )
        slowly.start()
        time.sleep(3 * seconds)
        taken, closed = read_slowly(hardly, 65536, 0, 10)
        assert closed and taken < 1 << 20, "nor does the system keep it"
        slowly.join()
        assert not told["slow"][1] and told["slow"][0] > least * 4 * seconds


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what was taken")
def test_the_end_of_an_answer_that_nobody_takes_keeps_no_connection(serve: Any, wait_until: Any) -> None:
    """It is smaller than what the transport holds before it tells the application to wait."""
    room = Room(10)
    address = serve(room, 0.4)

    with connect(address, GET.replace(b"/", b"/whole", 1) * 2) as reader:
        reader.recv(100)
        wait_until(lambda: not room._open, 20)


SERVE = """
import resource
soft = {soft}
if soft:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
from deuteron.server import Settings, serve
serve(Settings.from_environment())
"""


def is_well(address: tuple[str, int]) -> bool:
    with suppress(OSError), connect(address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection:
        return connection.recv(100).startswith(b"HTTP/1.1 200 ")
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are Linux's")
@pytest.mark.parametrize("early", [True, False], ids=["which is known", "which is reached"])
def test_descriptors_that_run_out_fill_no_log_and_leave_the_service_reachable(
    tmp_path: Path, background: Any, pick_port: Callable[[], int], wait_until: Callable[..., None], early: bool
) -> None:
    """300 clients that say nothing, with 256 descriptors, or 100 where a third of them was not left for clients."""
    port = pick_port()
    environment = {"DEUTERON_HOME": str(tmp_path / "home"), "DEUTERON_SCHEDULER": "none", "DEUTERON_PORT": str(port)}
    server, log = background(SERVE.format(soft=256 if early else None), environment), tmp_path / "process0.log"
    address = ("127.0.0.1", port)
    wait_until(lambda: is_well(address), 60)
    if not early:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (100, 100))
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(connect(address))
        began = time.monotonic()
        assert is_well(address)
        assert time.monotonic() - began < 15
        time.sleep(2)
    assert log.stat().st_size < 4000, log.read_text()[-2000:]
    assert "ulimit -n" in log.read_text()


def test_a_server_that_stops_ends_its_streams(make_service: Any) -> None:
    service = make_service(DEUTERON_SCHEDULER="none")
    job_id = service.submit()
    streams = ("/live/jobs", f"/v1/jobs/{job_id}/events")
    with ExitStack() as stack:
        readers = [
            stack.enter_context(
                connect(("127.0.0.1", service.port), f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            )
            for path in streams
        ]
        received = [reader.recv(65536) for reader in readers]
        assert all(text.startswith(b"HTTP/1.1 200 ") for text in received)
        began = time.monotonic()
        service.process.terminate()
        for reader, text in zip(readers, received, strict=True):
            while part := reader.recv(65536):
                text += part
            assert text.endswith(b"\r\n0\r\n\r\n"), "the end is an end, not a broken connection"
        assert time.monotonic() - began < 2.5, "before what is under way is cut off"
        service.process.wait(20)
    log = (service.home / "server.log").read_text()
    assert "Traceback" not in log and "Cancel" not in log


def test_a_server_that_stops_says_no_more_of_answers_than_their_number() -> None:
    def record(error: BaseException | None) -> logging.LogRecord:
        exc_info = None if error is None else (type(error), error, None)
        return logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "x", (), exc_info)

    assert is_no_cancellation(record(None)) and is_no_cancellation(record(ValueError()))
    assert not is_no_cancellation(record(asyncio.CancelledError()))
