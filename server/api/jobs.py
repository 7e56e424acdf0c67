"""/v1/jobs: submit, read, list, cancel; the trials and the profile of a job."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated

from fastapi import Header, Query, Request, Response, status
from fastapi.responses import FileResponse

from deuteron.tuner.measure.bounds import explain
from deuteron.tuner.measure.measurement import Measurement

from ..auth import Reader, Submitter
from ..context import ContextDep, ServiceContext
from ..dispatch.resources import resources_for, resources_of
from ..fleet import connected_workers
from ..problems import HttpProblem
from ..sending import send_file, sent_before
from ..store import Job, JobState, StoredTrial, StoredWorker
from ..submission import submit
from .paging import Cursor, Limit, decode_number, encode_cursor, link_next
from .routes import make_router
from .schemas.jobs import JobAnswer, JobBody, JobDetail, JobPage, Progress, TrialAnswer, TrialPage

router = make_router("jobs", "/v1/jobs")

_KEY = re.compile(r"^[\x21-\x7e]{1,200}$")


@router.post("", status_code=status.HTTP_202_ACCEPTED, summary="Submit a job")
def submit_job(
    body: JobBody,
    context: ContextDep,
    principal: Submitter,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="The same key with the same body answers with the same job for a day.",
            json_schema_extra={"pattern": _KEY.pattern},
        ),
    ] = None,
) -> JobAnswer:
    """Stores the job and answers at once; `Location` is the job. A kernel in the workload is parsed here,
    so a mistake in it is answered with its line, and it is never executed as Python."""
    if idempotency_key is not None and not _KEY.match(idempotency_key):
        raise HttpProblem(
            400,
            "bad-idempotency-key",
            "Idempotency-Key must be 1 to 200 printable characters without spaces",
            hint="a UUID is a good one",
        )
    job = submit(context, body, owner=principal.id, idempotency_key=idempotency_key)
    context.dispatcher.wake()
    answer = job_answer(context, job)
    response.headers["Location"] = answer.links["self"]
    return answer


@router.get("", summary="List jobs, newest first")
def list_jobs(
    request: Request,
    response: Response,
    context: ContextDep,
    _reader: Reader,
    cursor: Cursor = None,
    limit: Limit = 50,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
) -> JobPage:
    with context.store.read() as tx:
        jobs = tx.jobs.page(before=decode_number(cursor), limit=limit + 1, state=state)
    following = encode_cursor(jobs[limit - 1].number) if len(jobs) > limit else None
    link_next(request, response, following)
    return JobPage(jobs=job_answers(context, jobs[:limit]), next=following)


@router.get("/{job_id}", summary="Read a job")
def get_job(job_id: str, context: ContextDep, _reader: Reader) -> JobDetail:
    with context.store.read() as tx:
        job = tx.jobs.get(job_id)
        configs = tx.config_history.of_job(job_id)
    return JobDetail(
        **job_answer(context, job).model_dump(),
        spec=json.loads(job.spec),
        configs=[json.loads(config.body) for config in configs],
    )


@router.post("/{job_id}/cancel", summary="Cancel a job")
def cancel_job(job_id: str, context: ContextDep, _submitter: Submitter) -> JobAnswer:
    """A queued job ends at once; a running one when its worker has heard of it, within seconds. Repeating
    the request, or cancelling a job that has ended, changes nothing."""
    job = context.ingest.cancel(job_id)
    context.dispatcher.wake()
    return job_answer(context, job)


@router.get("/{job_id}/trials", summary="Read a job's trials")
def list_trials(
    request: Request,
    response: Response,
    job_id: str,
    context: ContextDep,
    _reader: Reader,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> TrialPage:
    """In order of arrival, each as the tuner wrote it."""
    with context.store.read() as tx:
        tx.jobs.get(job_id)
        trials = tx.trials.page(job_id, after=decode_number(cursor) or 0, limit=limit + 1)
    following = encode_cursor(trials[limit - 1].sequence) if len(trials) > limit else None
    link_next(request, response, following)
    return TrialPage(trials=[trial_answer(trial) for trial in trials[:limit]], next=following)


@router.get(
    "/{job_id}/profile",
    summary="Download a job's profile",
    response_class=FileResponse,
    responses={
        200: {"content": {"application/json": {}}, "description": "The profile."},
        206: {"description": "The part of the profile that `Range` asked for."},
        304: {"description": "`If-None-Match` names this profile: you have it."},
    },
)
def get_profile(
    request: Request,
    job_id: str,
    context: ContextDep,
    _reader: Reader,
    _if_none_match: Annotated[
        str | None, Header(alias="if-none-match", description="The `ETag` of the profile that you have.")
    ] = None,
) -> Response:
    """The search as a .hatchet file, for proton-viewer."""
    with context.store.read() as tx:
        job = tx.jobs.get(job_id)
    path = context.settings.directory("profiles") / f"{job.profile_sha256}.hatchet"
    if job.profile_sha256 is None or not path.is_file():
        raise _no_profile(job)
    # Kept by browsers alone, who ask again: another run of the job replaces it.
    headers = {"ETag": f'"{job.profile_sha256}"', "Cache-Control": "private, no-cache"}
    if (answer := sent_before(request, headers)) is not None:
        return answer
    return send_file(
        request,
        path,
        media_type="application/json",
        filename=f"{job.kernel_name}-{job_id[:8]}.hatchet",
        headers=headers,
    )


def job_answer(context: ServiceContext, job: Job) -> JobAnswer:
    return job_answers(context, [job])[0]


def job_answers(context: ServiceContext, jobs: Sequence[Job]) -> list[JobAnswer]:
    """Jobs as any server on the database answers."""
    workers: list[StoredWorker] = []
    if any(job.state is JobState.QUEUED for job in jobs):
        with context.store.read() as tx:
            workers = connected_workers(tx)
    return [_answer(job, workers) for job in jobs]


def _answer(job: Job, workers: Sequence[StoredWorker]) -> JobAnswer:
    base = f"/v1/jobs/{job.id}"
    return JobAnswer(
        id=job.id,
        state=job.state.value,
        kernel_name=job.kernel_name,
        kernel_hash=job.kernel_hash,
        device=job.device,
        progress=Progress(trials=job.trials_done, screened=job.screened, trials_total=job.trials_total),
        attempts=job.attempts,
        worker=job.worker,
        cancel_requested=job.cancel_requested,
        error=job.error,
        waiting_for=_waiting_for(job, workers),
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        links={
            "self": base,
            "events": f"{base}/events",
            "trials": f"{base}/trials",
            "cancel": f"{base}/cancel",
            "profile": f"{base}/profile",
            "kernel": f"/v1/kernels/{job.kernel_hash}",
        },
    )


def _waiting_for(job: Job, workers: Sequence[StoredWorker]) -> str | None:
    if job.state is not JobState.QUEUED:
        return None
    needed = resources_for(job.device)
    fitting = [worker for worker in workers if needed.keys() <= resources_of(worker.device).keys()]
    if any(not worker.draining for worker in fitting):
        return None
    return f"a worker with {' and '.join(sorted(needed))}{' that is not draining' if fitting else ''}"


def trial_answer(stored: StoredTrial) -> TrialAnswer:
    body = json.loads(stored.body)
    measured = body.get("measurement")
    return TrialAnswer(
        sequence=stored.sequence,
        attempt=stored.attempt,
        dtype=stored.dtype,
        shape=json.loads(stored.shape),
        recorded_at=stored.recorded_at,
        trial=body,
        bound=stored.bound,
        explanation=None if measured is None else explain(Measurement.from_json(measured)),
    )


def _no_profile(job: Job) -> HttpProblem:
    yet, hint = "", "a search that went through has one, unless its worker could not upload it"
    if not job.state.is_final:
        yet, hint = " yet", "the worker uploads the profile when the search is finished"
    return HttpProblem(404, "no-profile", f"job {job.id} has no profile{yet}: it is {job.state}", hint=hint)
