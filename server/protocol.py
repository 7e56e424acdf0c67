"""HTTP/1.1 as uvicorn speaks it, with a limit on how long a request's head may take to arrive."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


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
