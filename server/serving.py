"""uvicorn's server, told what to do where the system has no descriptor left, and when it is to stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from .connections import Room

# Clients that the system keeps until they are accepted; the others try again after a second. uvicorn's number for it is
# how many are accepted at once, too, which is less here.
_QUEUE = 2048
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ServiceServer(uvicorn.Server):
    """Serves; ``end_streams`` is called when it stops: streams of running jobs never end by themselves."""

    def __init__(self, config: uvicorn.Config, room: Room, end_streams: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._room, self._end_streams = room, end_streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        asyncio.get_running_loop().set_exception_handler(self._handle)
        logging.getLogger("uvicorn.error").addFilter(is_no_cancellation)
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(_QUEUE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen no more, and end what is under way."""
        await self._end_streams()
        await super().shutdown(sockets)

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio tells of each connection that it cannot accept, thousands a second, with a traceback."""
        error = context.get("exception")
        if "accept" in context["message"] and isinstance(error, OSError) and error.errno in _SHORTAGES:
            self._room.note_shortage()
        else:
            loop.default_exception_handler(context)


def is_no_cancellation(record: logging.LogRecord) -> bool:
    """Whether a message is of something else than an answer that a server cut off as it stopped: uvicorn has said how
    many there were."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)
