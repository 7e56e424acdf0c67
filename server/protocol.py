"""HTTP/1.1 as uvicorn speaks it, with a limit on how long a head may take to arrive, and errors in one form."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .problems import problem_response


class PatientProtocol(H11Protocol):
    """Closes connections whose next request does not get past its head in time: idle ones before their first request,
    and those that send a header now and then. (uvicorn itself watches only what is idle between requests.)"""

    head_seconds: ClassVar[float] = 30.0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            self._watch()
        else:
            self._ignore()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP, in the form of every other error, and close the connection."""
        problem = problem_response(400, "bad-http", msg, hint="send HTTP/1.1 with one Host")
        headers = [*problem.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=HTTPStatus(400).phrase.encode()),
            h11.Data(data=bytes(problem.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._ignore()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _ignore(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def patient_protocol(head_seconds: float) -> type[PatientProtocol]:
    """The protocol with a limit in seconds; uvicorn makes one instance a connection."""
    return type("PatientProtocol", (PatientProtocol,), {"head_seconds": head_seconds})
