"""HTTP/1.1 as uvicorn speaks it, with limits on the length and the time of a head and on the number of connections and
the patience with their clients, and errors in one form.

The parser is llhttp, by httptools: h11, which is written in Python, had a large part of the time of a lookup.
What h11 would refuse and llhttp lets pass is looked at here: RFC 9112, sections 2.3, 3.2, 6.1 and 7.1.2.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .connections import Room, Taking
from .problems import problem_response

#: Bytes of a request line and its headers together, and of what stands between the parts of a body.
MOST_HEAD_BYTES = 64 << 10
_VERSIONS = ("1.0", "1.1")


class _NoRequest(Exception):
    """Bytes are no request."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why bytes are no request, and what to send instead."""

    detail: str = "this is no HTTP request"
    hint: str = "send HTTP/1.1 with one Host"
    status: int = 400
    slug: str = "bad-http"


_NO_HTTP = _Refusal()
_TOO_LONG = _Refusal(
    f"the head is longer than {MOST_HEAD_BYTES >> 10} KiB",
    "send a shorter address, or less in headers",
    431,
    "head-too-long",
)


class PatientProtocol(HttpToolsProtocol):
    """Closes connections whose next request does not get past its head in time: idle ones before their first request,
    and those that send a header now and then. (uvicorn itself watches only what is idle between requests.) Likewise
    those that do not take their answers, and some where there are too many."""

    head_seconds: ClassVar[float] = 30.0
    room: ClassVar[Room]
    _taking: Taking
    _head_timer: asyncio.TimerHandle | None = None
    _refusal = _NO_HTTP  # why the last bytes were refused
    _deaf = False  # after such bytes nothing more is read
    _in_head = False
    _head_bytes = 0
    _unread_bytes = 0  # received since the parser last had something to tell
    _skipped = False  # while the parser reads a head that stands for one that was read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        self._taking = Taking(transport, self.loop, self.head_seconds)
        self._watch()
        self.room.enter(transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        if self._deaf:
            return
        self._unread_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        if self._unread_bytes > MOST_HEAD_BYTES and not self._deaf:
            self._refusal = _TOO_LONG
            self.send_400_response("")
        if self._is_answered and self.timeout_keep_alive_task is None and not self._deaf:
            self._watch()
        else:
            self._ignore()
        self._take_turns()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._deaf = True
        self._ignore()
        self._taking.end()
        self.room.leave(self.transport)
        super().connection_lost(exc)

    def _parse(self, data: bytes) -> None:
        """Feed the parser. Behind the head of a request for another protocol it reads no further, though there is none
        here to go over to, and what follows is the request's body: a new parser reads on, behind a head with the same
        body."""
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
            headers = dict(self.headers)
            coded = b"transfer-encoding" in headers
            body = (
                b"Transfer-Encoding: chunked" if coded else b"Content-Length: " + headers.get(b"content-length", b"0")
            )
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            self._skipped = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + body + b"\r\n\r\n")

    # ---- what the parser tells -------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._skipped:
            return
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        if not self._skipped:
            self._count(url)
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. One behind a body in chunks is nobody's: the application has read its headers."""
        if self._in_head:
            self._count(name, value)
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """The end of a head: the application is called."""
        if self._skipped:
            self._skipped = False
            return
        self._in_head, self._unread_bytes = False, 0
        self._check_head()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._unread_bytes = 0
        if not self.parser.should_upgrade():  # else its body follows
            super().on_message_complete()

    # ---- whose turn it is ------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """The last of an answer was written."""
        super().on_response_complete()
        self._take_turns()
        self._taking.begin()

    def pause_writing(self) -> None:
        """The client takes less than is written."""
        super().pause_writing()
        self._taking.begin()

    def _take_turns(self) -> None:
        if self._is_answered or self.cycle.more_body:
            self.room.waits(self.transport)
        else:
            self.room.works(self.transport)

    def _count(self, *parts: bytes) -> None:
        self._head_bytes += sum(map(len, parts))
        if self._head_bytes > MOST_HEAD_BYTES:
            self._give_up(_TOO_LONG)

    def _check_head(self) -> None:
        hosts = [value for name, value in self.headers if name == b"host"]
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        version = self.parser.get_http_version()
        if self.parser.get_method() == b"CONNECT":
            self._refuse("CONNECT is for proxies", "ask for a path")
        if version not in _VERSIONS:
            self._refuse(f"HTTP/{version} is not spoken here")
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            self._refuse("it has several Hosts" if hosts else "it has no Host")
        if codings and (codings != [b"chunked"] or version == "1.0"):
            self._refuse("its Transfer-Encoding is not chunked", "send chunks alone, or Content-Length")
        if not self.url.startswith(b"/"):
            self._check_address(hosts)

    def _check_address(self, hosts: list[bytes]) -> None:
        if b"//" not in self.url:
            self._refuse("its address is not a path", "ask for a path")
        if _authority(self.url) not in hosts:
            self._refuse("its address is of another host than Host")

    def _refuse(self, reason: str, hint: str = _NO_HTTP.hint) -> None:
        self._give_up(_Refusal(f"{_NO_HTTP.detail}: {reason}", hint))

    def _give_up(self, refusal: _Refusal) -> None:
        self._refusal = refusal
        raise _NoRequest(refusal.detail)

    # ---- answers ---------------------------------------------------------------------------------------------------

    @property
    def _is_answered(self) -> bool:
        """Whether every request so far has its answer."""
        return self.cycle is None or self.cycle.response_complete

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP, in the form of every other error, and close the connection: at once, or when
        the requests before them have their answers."""
        self._deaf = True
        self._ignore()
        if not self._is_answered and (self.pipeline or not self.cycle.more_body):
            self.cycle.keep_alive = False
            return
        if self._is_answered or not self.cycle.response_started:
            why = self._refusal
            problem = problem_response(why.status, why.slug, why.detail, hint=why.hint)
            lines = [name + b": " + value for name, value in (*problem.raw_headers, (b"connection", b"close"))]
            self.transport.write(STATUS_LINE[why.status] + b"\r\n".join([*lines, b"", b""]) + bytes(problem.body))
        if not self._is_answered:
            self.cycle.disconnected = True  # it has no other answer
        self._taking.begin()
        self.transport.close()

    def _watch(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _ignore(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _authority(address: bytes) -> bytes:
    """The host in ``http://host/path``."""
    return address.partition(b"//")[2].partition(b"/")[0]


def patient_protocol(head_seconds: float, room: Room) -> type[PatientProtocol]:
    """The protocol with a limit in seconds, and room for its connections; uvicorn makes one instance a connection."""
    return type("PatientProtocol", (PatientProtocol,), {"head_seconds": head_seconds, "room": room})
