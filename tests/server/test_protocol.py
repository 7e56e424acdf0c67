"""What our protocol takes for requests is what h11, another reader of HTTP, takes for them."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, field
from typing import Any

import h11
import pytest
import uvicorn
from uvicorn.server import ServerState

from deuteron.server.connections import Room
from deuteron.server.protocol import MOST_HEAD_BYTES, patient_protocol

METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"get", b"FOO", b"CONNECT", b"G ET"]
TARGETS = [b"/", b"/a?b=1", b"/%00", b"//x/y", b"*", b"http://a/x?y", b"http://other/", b"/\xff", b"/a b", b"/#f", b""]
VERSIONS = [b"1.1", b"1.1", b"1.1", b"1.0", b"0.9", b"2.0", b"1.2", b"1", b""]
HOSTS = [
    b"Host: a",
    b"Host: a",
    b"Host: a",
    b"Host : a",
    b"Host: a\r\nHost: b",
    b"host:a ",
    b"X: y",
    b"Host:\r\n a",
    b"Host",
]
LENGTHS = [
    (b"", b""),
    (b"Content-Length: 3", b"abc"),
    (b"Content-Length: 3", b"ab"),
    (b"Content-Length: 2", b"abc"),
    (b"Content-Length: 3\r\nContent-Length: 3", b"abc"),
    (b"Content-Length: +3", b"abc"),
    (b"Content-Length: 0x3", b"abc"),
    (b"Content-Length: 3, 3", b"abc"),
    (b"Content-Length: ", b"abc"),
    (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: chunked", b"3;x=y\r\nabc\r\n0\r\nAuthorization: t\r\n\r\n"),
    (b"Transfer-Encoding: chunked", b"3\r\nabcd\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: chunked", b"-3\r\nabc\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: chunked", b"3\nabc\n0\n\n"),
    (b"Transfer-Encoding: chunked, chunked", b"3\r\nabc\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: gzip, chunked", b"3\r\nabc\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: identity", b"abc"),
    (b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"3\r\nabc\r\n0\r\n\r\n"),
    (b"Transfer-Encoding:\tchunked", b"3\r\nabc\r\n0\r\n\r\n"),
    (b"Transfer-Encoding : chunked", b"3\r\nabc\r\n0\r\n\r\n"),
]
OTHERS = [
    b"",
    b"",
    b"Connection: close",
    b"X: \x00",
    b"X: a\x01",
    b"X\xff: a",
    b"X: \xe9",
    b" folded",
    b"Expect: 100-continue",
    b"Connection: upgrade\r\nUpgrade: x",
    b": v",
]


@dataclass
class Request:
    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    whole: bool = False


class Transport(asyncio.Transport):
    """Keeps what is written; ``closed_first`` is whether the server closed it before the client."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.closed = self.closed_first = False

    def write(self, data: Any) -> None:
        assert not self.closed
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


@dataclass
class Application:
    """Reads requests whole and answers 204."""

    seen: list[Request] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        request = Request(scope["method"], target, scope["headers"])
        self.seen.append(request)
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            request.body += message.get("body", b"")
            if not message["more_body"]:
                break
        request.whole = True
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def ours(parts: list[bytes]) -> tuple[list[Request], Transport]:
    """The requests that reach the application when these parts arrive one by one."""

    async def talk() -> tuple[list[Request], Transport]:
        application, transport = Application(), Transport()
        config = uvicorn.Config(application, lifespan="off", ws="none", log_config=None)
        config.load()
        config.loaded_app = application
        protocol = patient_protocol(30.0, Room(10))(config, ServerState(), {})
        protocol.connection_made(transport)
        for part in parts:
            if transport.closed:
                break
            protocol.data_received(part)
            for _ in range(6):
                await asyncio.sleep(0)
        transport.closed_first = transport.closed
        protocol.connection_lost(None)
        for _ in range(6):
            await asyncio.sleep(0)
        return application.seen, transport

    return asyncio.run(talk())


def of_h11(data: bytes) -> list[Request]:
    """The requests that h11 reads before it refuses, or has no more."""
    connection, found = h11.Connection(h11.SERVER), []
    connection.receive_data(data)
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return found
        if isinstance(event, h11.Request):
            found.append(Request(event.method.decode(), event.target, [(n, v) for n, v in event.headers]))
        elif isinstance(event, h11.Data):
            found[-1].body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            found[-1].whole = True
        else:
            if connection.our_state is h11.SEND_RESPONSE and connection.their_state in (
                h11.DONE,
                h11.MIGHT_SWITCH_PROTOCOL,
            ):
                connection.send(h11.Response(status_code=404, headers=[]))
                connection.send(h11.EndOfMessage())
                try:
                    connection.start_next_cycle()
                except h11.LocalProtocolError:
                    return found
                continue
            return found


def some_request(random_: random.Random) -> bytes:
    """Mostly a request, with few odd parts."""

    def pick(usual: Any, odd: list[Any]) -> Any:
        return usual if random_.random() < 0.75 else random_.choice(odd)

    length, body = pick(LENGTHS[1], LENGTHS)
    lines = [
        pick(b"POST", METHODS) + b" " + pick(b"/a?b=1", TARGETS) + b" HTTP/" + pick(b"1.1", VERSIONS),
        pick(b"Host: a", HOSTS),
        pick(b"X: y", OTHERS),
        length,
    ]
    random_.shuffle(tail := lines[1:])
    return b"\r\n".join([lines[0], *filter(None, tail), b"", b""]) + body


def damaged(data: bytes, random_: random.Random) -> bytes:
    """The bytes with one of them changed, missing or doubled, in every second case."""
    if random_.random() < 0.5:
        return data
    at = random_.randrange(len(data))
    kind, new = random_.randrange(3), bytes([random_.choice(b"\r\n\0 \t:;,0aZ\x7f\xff")])
    return data[:at] + (new, b"", data[at : at + 1] + new)[kind] + data[at + 1 :]


def split(data: bytes, random_: random.Random) -> list[bytes]:
    places = sorted(random_.sample(range(len(data) + 1), random_.randrange(4)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_taken_for_a_request_is_one(seed: int) -> None:
    """What a proxy before this service reads otherwise could be a request behind its back."""
    random_ = random.Random(seed)
    taken = 0
    for _ in range(150):
        data = damaged(b"".join(some_request(random_) for _ in range(random_.choice((1, 1, 2)))), random_)
        parts = split(data, random_)
        if re.search(rb"  [^\r\n]*HTTP/", data):
            continue  # h11 refuses two spaces in a request line, which mean one
        seen, transport = ours(parts)
        wanted = of_h11(data)
        for mine, other in zip(seen, wanted, strict=False):
            if not mine.whole:
                break
            assert other.whole, (data, mine)
            assert (mine.method, mine.body) == (other.method, other.body), data
            assert mine.headers == other.headers, data
            assert other.target.partition(b"#")[0].endswith(mine.target.rstrip(b"?")), (data, mine)
            taken += 1
        assert len([request for request in seen if request.whole]) <= len(wanted), (data, seen, wanted)
        assert len(statuses(transport.written)) <= len(seen) + 1, data
    assert taken > 30


def statuses(written: bytes) -> list[int]:
    """Those of the answers, in order."""
    return [int(status) for status in re.findall(rb"^HTTP/1.1 ([2-5]\d\d) ", written, re.MULTILINE)]


def answer_to(*parts: bytes) -> tuple[list[Request], bytes, bool]:
    seen, transport = ours(list(parts))
    return seen, transport.written, transport.closed_first


@pytest.mark.parametrize(
    ("target", "host", "taken", "says"),
    [
        (b"http://a/x?y", b"a", b"/x?y", b""),  # what proxies are asked for, which servers have to take
        (b"http://a:80/x", b"a:80", b"/x", b""),
        (b"//x/y", b"a", b"//x/y", b""),
        (b"http://other/x", b"a", None, b"its address is of another host than Host"),
        (b"http://a:80/x", b"a", None, b"its address is of another host than Host"),
        (b"*", b"a", None, b"its address is not a path"),
    ],
)
def test_whole_addresses_are_of_the_host_that_is_named(
    target: bytes, host: bytes, taken: bytes | None, says: bytes
) -> None:
    seen, written, _ = answer_to(b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert [request.target for request in seen if request.whole] == ([] if taken is None else [taken])
    assert statuses(written) == ([400] if taken is None else [204]) and says in written


def test_heads_and_trailers_have_an_end() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\n"
    line = b"X: " + b"y" * 1000 + b"\r\n"
    many = MOST_HEAD_BYTES // len(line) + 2
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    for parts in (
        [head + line * many],
        [head] + [line] * many,
        [head + b"X: "] + [b"y" * 1000] * many,
        [b"GET /"] + [b"y" * 1000] * many,
        [chunked + b"0\r\n"] + [line] * many,
        [chunked + b"0\r\nX: "] + [b"y" * 1000] * many,
        [chunked + b"3;"] + [b"y" * 1000] * many,
    ):
        seen, written, closed = answer_to(*parts)
        assert closed and b"longer than 64 KiB" in written, parts[0][-20:]
        assert not any(request.whole for request in seen)
    seen, written, _ = answer_to(head + line * (many - 5) + b"Content-Length: 300000\r\n\r\n", *[b"z" * 100_000] * 3)
    assert [len(request.body) for request in seen if request.whole] == [300_000] and b"204" in written


def test_headers_behind_a_body_are_nobody_s() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    seen, _, _ = answer_to(head, b"3\r\nabc\r\n0\r\n", b"Authorization: Bearer x\r\n\r\n")
    assert seen[0].whole and [name for name, _ in seen[0].headers] == [b"host", b"transfer-encoding"]


def test_what_follows_a_request_and_is_none_takes_nothing_from_its_answer() -> None:
    whole = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    for parts, wanted in (
        ([whole + b"\0\0\0\r\n\r\n"], [204]),
        ([whole + whole + b"\0\0\0\r\n\r\n"], [204, 204]),
        ([whole, b"\0\0\0\r\n\r\n"], [204, 400]),
        ([whole, b"\0\0\0\r\n\r\n", whole], [204, 400]),
        ([b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", b"cdefg\r\n"], [400]),
    ):
        _, written, closed = answer_to(*parts)
        assert statuses(written) == wanted and closed, parts


def test_a_request_for_another_protocol_is_answered_as_any_other() -> None:
    """Java's HttpClient asks for HTTP/2 with every first request."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    for body in (b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"\r\n"):
        for cut in (0, len(head) + 25, -2):
            whole = (head + body) * 2
            seen, written, closed = answer_to(whole[:cut], whole[cut:])
            assert statuses(written) == [204, 204] and not closed
            assert [request.body for request in seen] == [b"" if body == b"\r\n" else b"abc"] * 2
