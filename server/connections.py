"""How many connections a server has, and which of them go: some where there are too many, and those whose clients do
not take what they have asked for."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import struct
import sys
import time
from itertools import islice

logger = logging.getLogger("deuteron.server")

#: Descriptors that are asked of the system; where nothing limits them, programs that look at each would take for ever.
MOST_DESCRIPTORS = 65_536
#: Bytes of an answer that a client has to take in the time that a request may take to arrive.
LEAST_TAKEN = 64 << 10
# Of so many descriptors a connection may have one: with another for the file that is sent, it leaves one for the rest.
_SHARE = 3
_SAID_EVERY_S = 60.0
_LOOKS = 8
_AT_ONCE = struct.pack("ii", 1, 0)
# Where Linux says how many bytes the other end has acknowledged, and how.
_ACKNOWLEDGED = struct.Struct("=120xQ")


def raise_descriptor_limit() -> int:
    """Let this process and those that it starts have as many file descriptors as they may; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # some systems have a lower limit beside
        return soft
    return most


class Room:
    """Room for ``most`` connections, which the one that its client has left alone longest makes for another.

    Those that wait for their answer stay. A new one that finds only such goes itself.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: set[asyncio.Transport] = set()
        self._waiting: dict[asyncio.Transport, None] = {}
        self._say_again = 0.0
        self._make_again = 0.0

    @classmethod
    def within(cls, descriptors: int) -> Room:
        """Room for what a process with so many file descriptors can serve."""
        return cls(max(1, descriptors // _SHARE))

    def enter(self, transport: asyncio.Transport) -> None:
        """A client connected."""
        self._open.add(transport)
        self.waits(transport)
        if len(self._open) > self.most:
            self._close(1)

    def waits(self, transport: asyncio.Transport) -> None:
        """The next word is the client's, of whom something was just heard, or who was answered."""
        self._waiting.pop(transport, None)
        if transport in self._open:
            self._waiting[transport] = None

    def works(self, transport: asyncio.Transport) -> None:
        """The next word is ours."""
        self._waiting.pop(transport, None)

    def leave(self, transport: asyncio.Transport) -> None:
        """The connection is closed."""
        self._open.discard(transport)
        self._waiting.pop(transport, None)

    def note_shortage(self) -> None:
        """The system had no descriptor for another connection: half of them make room, once a second."""
        if time.monotonic() >= self._make_again:
            self._make_again = time.monotonic() + 1.0
            self._close(max(1, len(self._open) // 2))

    def _close(self, count: int) -> None:
        if time.monotonic() >= self._say_again:
            self._say_again = time.monotonic() + _SAID_EVERY_S
            logger.warning(
                "%d connections are more than this process has file descriptors for (ulimit -n): those that say "
                "nothing are closed",
                len(self._open),
            )
        for transport in list(islice(self._waiting, count)):
            self.leave(transport)
            transport.abort()


class Taking:
    """Closes a connection whose client takes less than :data:`LEAST_TAKEN` bytes in ``seconds`` of what is there for
    it: an answer to nobody would stay for ever. Only Linux says what a client has taken; elsewhere nothing is
    closed."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport, self._loop, self._seconds = transport, loop, seconds
        self._timer: asyncio.TimerHandle | None = None
        self._taken: int | None = None
        self._since = 0.0

    def begin(self) -> None:
        """Something was written. What the system has taken of it is no concern of ours."""
        if self._timer is None and self._transport.get_write_buffer_size():
            self._count_from(acknowledged(self._transport))

    def end(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _count_from(self, taken: int | None) -> None:
        self._taken, self._since = taken, self._loop.time()
        self._timer = self._loop.call_later(self._seconds / _LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        taken = acknowledged(self._transport)
        if not self._transport.get_write_buffer_size() or taken is None:
            return
        if self._taken is None or taken - self._taken >= LEAST_TAKEN:
            self._count_from(taken)
        elif self._loop.time() - self._since >= self._seconds:
            _reset(self._transport)
        else:
            self._timer = self._loop.call_later(self._seconds / _LOOKS, self._look)


def _reset(transport: asyncio.Transport) -> None:
    """Close a connection with all that is under way: else the system keeps megabytes for its client."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()


def acknowledged(transport: asyncio.Transport) -> int | None:
    """How many bytes the other end of a connection has taken so far; None where nobody knows."""
    connection = transport.get_extra_info("socket")
    if sys.platform != "linux" or connection is None:
        return None
    try:
        said = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
    except OSError:
        return None
    # Sandboxes that play Linux say 0.
    return (_ACKNOWLEDGED.unpack(said)[0] or None) if len(said) == _ACKNOWLEDGED.size else None
