"""/v1/jobs/{id}/events: a job's event log as Server-Sent Events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Annotated

from anyio import to_thread
from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from ..auth import Reader
from ..context import ContextDep, ServiceContext
from ..feeds import format_event, read_events
from ..problems import HttpProblem
from ..store import Job
from ..streams import stream_response
from .routes import make_router

router = make_router("jobs", "/v1/jobs")

# How soon a client that went away is noticed.
_LOOK_S = 1.0
#: Ids are 32-bit integers in the database.
MOST_EVENTS = 2**31 - 1


@router.get(
    "/{job_id}/events",
    summary="Follow a job",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "The stream."},
        204: {"description": "The job has ended and you have seen every event."},
    },
)
def follow(
    request: Request,
    job_id: str,
    context: ContextDep,
    _reader: Reader,
    last_event_id: Annotated[
        str | None,
        Header(
            description="Resume after this event; EventSource sends it by itself.",
            json_schema_extra={"pattern": r"^[0-9]{1,9}$"},
        ),
    ] = None,
    after: Annotated[int, Query(ge=0, le=MOST_EVENTS, description="Like Last-Event-ID, for the first request.")] = 0,
) -> Response:
    """Every event of the job from the beginning (or after `Last-Event-ID`), then new ones as they happen.

    Each has an `id` that counts 1, 2, 3 ..., an `event` name and JSON `data`. `job_state` tells every change
    of state; the stream ends after the one with a final state, or when the token does. Comments keep idle connections
    open.
    """
    if last_event_id is not None:
        if not last_event_id.isdecimal() or len(last_event_id) > 9:
            raise HttpProblem(
                400,
                "bad-last-event-id",
                f"Last-Event-ID {last_event_id[:40]!r} is not an event number",
                hint="send the id of the last event you saw",
            )
        after = int(last_event_id)
    with context.store.read() as tx:
        job = tx.jobs.get(job_id)
    if job.state.is_final and after >= job.last_event:
        return Response(status_code=204)
    return stream_response(request, context, "read", _stream(request, context, job, after))


async def _stream(request: Request, context: ServiceContext, job: Job, after: int) -> AsyncGenerator[bytes, None]:
    yield b"retry: 1000\n\n"
    heartbeat = context.settings.heartbeat_seconds
    last_sent = looked = time.monotonic()
    async with context.feeds.follow(job) as feed:
        while True:
            if feed.failed is not None:
                raise feed.failed
            if after + 1 < feed.first:
                _, events = await to_thread.run_sync(read_events, context.store, job.id, after)
                sent, after = b"".join(map(format_event, events)), events[-1].id if events else feed.first - 1
            else:
                sent, after = feed.since(after), max(after, feed.last)
            if sent:
                yield sent
                last_sent = time.monotonic()
                continue
            if feed.ended:
                return
            await feed.wait(min(_LOOK_S, heartbeat))
            now = time.monotonic()
            if now - looked >= _LOOK_S:
                looked = now
                if await request.is_disconnected():
                    return
            if now - last_sent >= heartbeat:
                yield b": still here\n\n"
                last_sent = now
