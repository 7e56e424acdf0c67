"""/v1/worker: what measuring processes report. Needs the worker scope; not meant for people."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from fastapi import Query, Request, Response, status

from deuteron.compiler.whole_file import sync_folder
from deuteron.tuner import DeviceFingerprint
from deuteron.tuner.experience import SearchPlace
from deuteron.tuner.job import parse_shape

from ..auth import WorkerPrincipal
from ..context import ContextDep
from ..dispatch.ingest import Delivery, Receipt
from ..models import MOST_SHAPE_KEY
from ..searches import NEIGHBOURS, nearest_searches
from .routes import make_router
from .schemas.fleet import (
    AnnounceAnswer,
    AnnounceBody,
    ClaimAnswer,
    ClaimBody,
    EventsBody,
    FinishedTrial,
    HeartbeatBody,
    ReceiptAnswer,
    ReleaseBody,
    SearchesAnswer,
)

router = make_router("worker", "/v1/worker")


@router.post("/jobs/{job_id}/claim", summary="Take a job")
def claim(job_id: str, body: ClaimBody, context: ContextDep, _worker: WorkerPrincipal) -> ClaimAnswer:
    """Answers with the spec and with every trial that earlier runs finished. 409 when the job has ended
    or another run has it."""
    taken = context.ingest.claim(job_id, claim_id=body.claim_id, worker=body.worker)
    return ClaimAnswer(
        attempt=taken.job.attempts,
        lease_seconds=context.settings.lease_seconds,
        spec=json.loads(taken.job.spec),
        finished=[
            FinishedTrial(shape=json.loads(trial.shape), dtype=trial.dtype, trial=json.loads(trial.body))
            for trial in taken.finished
        ],
    )


_SIZE = r"\w+=[1-9][0-9]{0,19}"
#: A shape as a worker writes it; that of a kernel without dims is empty.
_SHAPE = rf"^({_SIZE}(,{_SIZE})*)?$"


@router.get("/jobs/{job_id}/searches", summary="Read what other jobs know of a search")
def get_neighbours(
    job_id: str,
    context: ContextDep,
    _worker: WorkerPrincipal,
    shape: Annotated[
        str, Query(max_length=MOST_SHAPE_KEY, pattern=_SHAPE, description="Sizes, such as M=512,N=512; each name once.")
    ],
    dtype: Annotated[str, Query(min_length=1, max_length=16)],
    device: Annotated[str, Query(min_length=1, max_length=200, description="Key of the device that measures.")],
) -> SearchesAnswer:
    """What other jobs measured, and measure now, of the job's kernel: the searches nearest to this one first, to start
    from. Of each the configurations that worked, fastest first."""
    sizes = parse_shape(shape) if shape else {}
    with context.store.read() as tx:
        job = tx.jobs.get(job_id)
        place = SearchPlace(job.kernel_name, job.kernel_hash, device, sizes, dtype)
        logs = nearest_searches(tx, place, limit=NEIGHBOURS, without=job_id)
    return SearchesAnswer(searches=[log.to_json() for log in logs])


@router.post("/jobs/{job_id}/events", summary="Deliver events")
def deliver(job_id: str, body: EventsBody, context: ContextDep, _worker: WorkerPrincipal) -> ReceiptAnswer:
    """Safe to repeat: an event is known by its run and its number. Nothing is stored where the event `after` is not
    there, as in a backup that is older; then `missing` is true, and the run sends all of its events again."""
    events = [Delivery(item.sequence, item.event) for item in body.events]
    return _answer(context.ingest.deliver(job_id, claim_id=body.claim_id, events=events, after=body.after))


@router.post("/jobs/{job_id}/heartbeat", summary="Stay in charge of a job")
def heartbeat(job_id: str, body: HeartbeatBody, context: ContextDep, _worker: WorkerPrincipal) -> ReceiptAnswer:
    return _answer(context.ingest.heartbeat(job_id, claim_id=body.claim_id))


@router.post("/jobs/{job_id}/release", status_code=status.HTTP_204_NO_CONTENT, summary="Give a job back")
def release(job_id: str, body: ReleaseBody, context: ContextDep, _worker: WorkerPrincipal) -> None:
    """The worker was told to stop: its job is queued again and the attempt does not count. Of a run that does not have
    the job nothing changes. Events that are delivered later are stored all the same."""
    context.ingest.release(job_id, reason="its worker was stopped", claim_id=body.claim_id, refund=True)
    context.dispatcher.wake()


@router.post("/devices", summary="Announce devices")
def announce(body: AnnounceBody, context: ContextDep, _worker: WorkerPrincipal) -> AnnounceAnswer:
    devices = [DeviceFingerprint.from_json(device) for device in body.devices]
    with context.store.write() as tx:
        for device in devices:
            tx.devices.announce(
                key=device.key,
                kind=device.kind,
                name=device.name,
                fingerprint=json.dumps(device.to_json()),
                worker=body.worker,
            )
        tx.workers.announce(
            body.worker,
            device_key=devices[0].key if devices else None,
            toolchain=None if body.toolchain is None else json.dumps(body.toolchain, sort_keys=True),
        )
    return AnnounceAnswer(keys=[device.key for device in devices])


@router.put(
    "/jobs/{job_id}/profile",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Upload a job's profile",
)
async def upload_profile(
    job_id: str,
    request: Request,
    context: ContextDep,
    _worker: WorkerPrincipal,
    claim_id: Annotated[str, Query(max_length=80, description="The run, which has the job.")],
) -> Response:
    """The body is the .hatchet file; it is written to disk as it arrives, and takes the place of an earlier one. 409
    from a run that does not have the job, or not any more."""

    def check() -> None:
        with context.store.read() as tx:
            tx.jobs.owned(job_id, claim_id)

    await to_thread.run_sync(check)  # before anything is kept for it
    folder = context.settings.directory("profiles")
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            async for chunk in request.stream():
                digest.update(chunk)
                await to_thread.run_sync(file.write, chunk)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / f"{digest.hexdigest()}.hatchet")
        await to_thread.run_sync(sync_folder, folder)  # before the database names it
    finally:
        temporary.unlink(missing_ok=True)

    def attach() -> None:
        with context.store.write() as tx:
            replaced = tx.jobs.owned(job_id, claim_id).profile_sha256
            tx.jobs.attach_profile(job_id, digest.hexdigest())
            if replaced is not None and not tx.jobs.is_profile_of_any(replaced):
                tx.committed.append(lambda: (folder / f"{replaced}.hatchet").unlink(missing_ok=True))

    await to_thread.run_sync(attach, limiter=context.writers.limiter)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


def _answer(receipt: Receipt) -> ReceiptAnswer:
    return ReceiptAnswer(proceed=receipt.proceed, cancel=receipt.cancel, missing=receipt.missing)
