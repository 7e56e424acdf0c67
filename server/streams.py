"""Answers that go on until their caller leaves: server-sent events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from fastapi import Request
from fastapi.responses import StreamingResponse

from .auth import is_still_admitted
from .context import ServiceContext

# The last one tells nginx not to collect the stream before passing it on.
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def stream_response(
    request: Request, context: ServiceContext, scope: str, chunks: AsyncGenerator[bytes, None]
) -> StreamingResponse:
    """The chunks as an event stream, for as long as the caller's token is good for ``scope``. It is looked up before a
    chunk, every ``heartbeat_seconds``: an idle stream has to say something now and then."""
    admitted = _while_admitted(request, context, scope, chunks)
    return StreamingResponse(admitted, media_type="text/event-stream", headers=_HEADERS)


async def _while_admitted(
    request: Request, context: ServiceContext, scope: str, chunks: AsyncGenerator[bytes, None]
) -> AsyncIterator[bytes]:
    looked = time.monotonic()
    async with aclosing(chunks):
        async for chunk in chunks:
            if time.monotonic() - looked >= context.settings.heartbeat_seconds:
                if not await is_still_admitted(request, context, scope):
                    return
                looked = time.monotonic()
            yield chunk
