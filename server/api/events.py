"""/v1/jobs/{id}/events: a job's event log as Server-Sent Events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

from anyio import to_thread
from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from ..auth import Reader
from ..context import ContextDep, ServiceContext
from ..problems import HttpProblem
from ..store import Job, StoredEvent
from .routes import make_router

router = make_router("jobs", "/v1/jobs")

# Another server process may write events without waking our streams.
_POLL_S = 1.0
_BATCH = 200
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
    of state; the stream ends after the one with a final state. Comments keep idle connections open.
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
    return StreamingResponse(
        _stream(request, context, job_id, after),
        media_type="text/event-stream",
        # The last one tells nginx not to collect the stream before passing it on.
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(request: Request, context: ServiceContext, job_id: str, after: int) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    last_sent = time.monotonic()
    while True:
        job, events = await to_thread.run_sync(_read, context, job_id, after)
        for event in events:
            yield format_event(event)
            after = event.id
        if events:
            last_sent = time.monotonic()
        elif job.state.is_final and after >= job.last_event:
            return
        if not events:
            await context.signals.wait(job_id, min(_POLL_S, context.settings.heartbeat_seconds))
            if await request.is_disconnected():
                return
            if time.monotonic() - last_sent >= context.settings.heartbeat_seconds:
                yield b": still here\n\n"
                last_sent = time.monotonic()


def _read(context: ServiceContext, job_id: str, after: int) -> tuple[Job, list[StoredEvent]]:
    with context.store.read() as tx:
        # The job first: if it is final here, then its last event is in what is read next.
        return tx.jobs.get(job_id), tx.events.page(job_id, after=after, limit=_BATCH)


def format_event(event: StoredEvent) -> bytes:
    """One event in the stream format. ``body`` is JSON without line breaks."""
    return f"id: {event.id}\nevent: {event.kind}\ndata: {event.body}\n\n".encode()
