"""Ctrl-C on a service and on a worker: the terminal sends SIGINT to every process of theirs, at any moment."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uvicorn

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Blocks SIGINT for this thread, and for the threads and processes that it starts in the block: they end when they
    are told to, not in the middle of their start."""
    # It is started with the first process that is spawned, and then unblocks what was blocked.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopRequest:
    """SIGINT and SIGTERM while a server is made: noted, since an exception may be lost. Python drops those that are
    raised in a callback of its collector, and the server would run on."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._server: uvicorn.Server | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        self.received = signal.Signals(number)
        if self._server is not None:
            self._server.handle_exit(number, frame)

    def run(self, server: uvicorn.Server, listener: socket.socket) -> None:
        """Run the server, unless a signal came already."""
        self._server = server
        if self.received is None:
            server.run(sockets=[listener])


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """SIGINT and SIGTERM are noted in the block. What one of them does otherwise, it does behind the block."""
    request = StopRequest()
    before = {number: signal.signal(number, request.note) for number in STOPPING}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if request.received is not None:
            signal.raise_signal(request.received)
