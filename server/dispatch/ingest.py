"""What workers report becomes rows, in one transaction a delivery.

The rules that make kill -9 harmless live here:

* A worker writes each event to its spool before it sends it, and sends it until it is acknowledged. An event
  is (job, run, line of the spool); one that is stored already is acknowledged and skipped.
* A delivery says which event was acknowledged last. A database that has not got that one any more, as an older backup
  or a replica that lagged, has lost some: nothing of the delivery is stored, and the worker begins again with line 1.
* A finished trial is a fact: trials of a run that lost its job are still stored, though not those of a run that
  never had it. Anything that changes the job's state counts only from the run that owns the job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from deuteron.compiler.errors import DeuteronError
from deuteron.tuner.codec import Document
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.events import (
    JobCancelled,
    JobFailed,
    JobFinished,
    JobStarted,
    ShapeFinished,
    TrialFinished,
    TuneEvent,
    event_from_json,
)

from ..configs import put_record
from ..metrics import Metrics
from ..plausible import check_integers, check_sizes, check_trial
from ..settings import Settings
from ..signals import JobSignals
from ..store import (
    Conflict,
    Job,
    JobIsFinal,
    JobState,
    NewTrial,
    NotFound,
    ServiceStore,
    StoredTrial,
    TooLong,
    Transaction,
    WorkerIsDraining,
    worker_name,
)

#: As the column has it.
MAX_DEVICE_KEY = 200


class Delivery(Document, frozen=True):
    """One line of a worker's spool."""

    sequence: int
    event: dict[str, object]


class Receipt(Document, frozen=True):
    """The server's answer to a run: ``proceed`` is False when the run must stop measuring. ``missing``: of what was
    acknowledged to it some is gone, so it has to send everything again."""

    proceed: bool
    cancel: bool
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A job given to a run, with the trials that earlier runs finished."""

    job: Job
    finished: list[StoredTrial]


@dataclass(frozen=True, slots=True)
class Ingest:
    """Applies claims, deliveries and the end of runs to the store."""

    settings: Settings
    store: ServiceStore
    signals: JobSignals
    metrics: Metrics
    #: Called with the hash of a kernel whose job was stored as ended; must not wait for anything.
    ended: Callable[[str], None] = lambda kernel_hash: None

    @property
    def lease(self) -> timedelta:
        """How long a silent run keeps its job."""
        return timedelta(seconds=self.settings.lease_seconds)

    def claim(self, job_id: str, *, claim_id: str, worker: str) -> Claim:
        """Give a job to a run.

        Raises:
            JobIsFinal: the job has ended, or this would be one attempt too many (the job fails then).
            JobIsTaken: another run has it.
            NotFound: no such job.
            WorkerIsDraining: the worker is to get no other job.
        """
        with self.store.write() as tx:
            before = tx.jobs.lock(job_id)
            if before.claim_id != claim_id and worker_name(worker) in tx.workers.drained():
                raise WorkerIsDraining(
                    f"worker {worker_name(worker)} is draining", hint="POST /v1/workers/{name}/resume ends that"
                )
            job = tx.jobs.claim(job_id, claim_id=claim_id, worker=worker, lease=self.lease)
            if job.attempts > self.settings.max_attempts:
                job = self._give_up(tx, job, before.attempts)
            elif job.attempts != before.attempts:
                self._announce(tx, job, claim_id=claim_id)
            finished = tx.trials.page(job_id)
        self.signals.notify(job_id)
        if job.state is not JobState.RUNNING:
            raise JobIsFinal(f"job {job_id} has used its {before.attempts} attempts")
        return Claim(job, finished)

    def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
        """Store a worker's events. Safe to repeat. ``after``: the number of the last event that was acknowledged to the
        run; 0 from one that begins with its first.

        Raises:
            NotFound: no such job, or the run never had it.
            SchemaError, TooLong, Conflict: an event is not one that the tuner knows, or cannot be stored. All others
                of the delivery are.
        """
        refusal: DeuteronError | None = None
        told: dict[int, tuple[Delivery, TuneEvent]] = {}  # by number; read before other writers have to wait
        for item in events:
            try:
                told.setdefault(item.sequence, (item, event_from_json(item.event)))
            except SchemaError as error:
                refusal = refusal or error
        with self.store.write() as tx:
            job = tx.jobs.lock(job_id)
            if job.claim_id != claim_id and not tx.events.knows_run(job_id, claim_id):
                raise NotFound(f"job {job_id} was never given to the run {claim_id!r}", hint="claim the job first")
            if after and not tx.events.delivered(job_id, claim_id, [after]):
                return self._receipt(tx, job_id, claim_id, missing=True)
            for sequence in tx.events.delivered(job_id, claim_id, list(told)):
                del told[sequence]
            for item, event in told.values():
                try:
                    with tx.part():
                        self._apply(tx, job, claim_id, item, event)
                except (SchemaError, TooLong, Conflict) as error:
                    refusal = refusal or error
                if isinstance(event, JobFinished | JobFailed | JobCancelled):
                    job = tx.jobs.get(job_id)
            self._advance(tx, job_id)
            receipt = self._receipt(tx, job_id, claim_id)
        self.signals.notify(job_id)
        if refusal is not None:
            raise refusal
        return receipt

    def heartbeat(self, job_id: str, *, claim_id: str) -> Receipt:
        """Extend the run's lease and tell it whether to go on."""
        with self.store.write() as tx:
            return self._receipt(tx, job_id, claim_id)

    def release(self, job_id: str, *, reason: str, claim_id: str | None = None, refund: bool = False) -> Job:
        """A run is gone: queue its job again, or fail it when its attempts are used up.

        ``claim_id`` limits this to one run: another run may have taken the job over meanwhile. ``refund``
        says that the run was stopped on purpose, so it does not count as an attempt.
        """
        with self.store.write() as tx:
            job = tx.jobs.lock(job_id)
            if job.state is not JobState.RUNNING or claim_id not in (None, job.claim_id):
                return job
            if job.cancel_requested:
                job = tx.jobs.finish(job_id, JobState.CANCELLED)
                self._announce(tx, job)
            elif job.attempts >= self.settings.max_attempts and not refund:
                job = self._give_up(tx, job, job.attempts)
            else:
                job = tx.jobs.requeue(job_id, refund=refund)
                self._announce(tx, job, reason=reason)
        self.metrics.count("runs_lost")
        self.signals.notify(job_id)
        return job

    def release_running(self, reason: str) -> None:
        """All runs are gone, and not one of them is to blame."""
        with self.store.read() as tx:
            running = tx.jobs.in_state(JobState.RUNNING)
        for job in running:
            self.release(job.id, reason=reason, refund=True)

    def fail(self, job_id: str, error: str) -> None:
        """End a job for a reason that trying again would not change."""
        with self.store.write() as tx:
            job = tx.jobs.lock(job_id)
            if not job.state.is_final:
                self._announce(tx, tx.jobs.finish(job_id, JobState.FAILED, error=error))
        self.signals.notify(job_id)

    def cancel(self, job_id: str) -> Job:
        """Ask for a job's end. Idempotent.

        Raises:
            NotFound: no such job.
        """
        with self.store.write() as tx:
            before = tx.jobs.lock(job_id)
            job = tx.jobs.request_cancel(job_id)
            if job != before:
                self._announce(tx, job)
        self.signals.notify(job_id)
        return job

    def _apply(self, tx: Transaction, job: Job, claim_id: str, item: Delivery, event: TuneEvent) -> None:
        tx.events.append(
            job.id,
            str(item.event["kind"]),
            json.dumps(item.event, separators=(",", ":")),
            claim_id=claim_id,
            sequence=item.sequence,
        )
        check_event(job, event)
        check_integers(item.event, "event")
        owns = job.claim_id == claim_id and job.state is JobState.RUNNING
        match event:
            case JobStarted():
                tx.jobs.name_device(job.id, event.device[:MAX_DEVICE_KEY])
            case TrialFinished():
                if tx.trials.append(job.id, new_trial(event, job.attempts)):
                    self.metrics.count("trials", status=event.trial.status)
                    if event.trial.phase == "screen":
                        tx.jobs.count_screened(job.id)
            case ShapeFinished():
                put_record(tx, event.record, job.id, who=job.worker or "")
            case JobFinished() if owns:
                self._finish(tx, job, JobState.SUCCEEDED, None)
            case JobFailed() if owns:
                hint = f"\nhint: {event.hint}" if event.hint else ""
                self._finish(tx, job, JobState.FAILED, event.error + hint)
            case JobCancelled() if owns:
                self._finish(tx, job, JobState.CANCELLED, None)
            case _:
                pass

    def _finish(self, tx: Transaction, job: Job, state: JobState, error: str | None) -> None:
        self._announce(tx, tx.jobs.finish(job.id, state, error=error))

    def _give_up(self, tx: Transaction, job: Job, lost: int) -> Job:
        times = "once" if lost == 1 else f"{lost} times"
        ended = tx.jobs.finish(
            job.id,
            JobState.FAILED,
            error=f"the worker of this job was lost {times}; its finished trials are kept",
        )
        self._announce(tx, ended)
        return ended

    def _announce(self, tx: Transaction, job: Job, *, reason: str | None = None, claim_id: str | None = None) -> None:
        """Put a change of state into the event log, where every watcher sees it in order. ``claim_id``: the run that
        the job was given to."""
        body = {
            "kind": "job_state",
            "state": job.state.value,
            "attempt": job.attempts,
            "cancel_requested": job.cancel_requested,
            "reason": reason or job.error,
        }
        tx.events.append(job.id, "job_state", json.dumps(body, separators=(",", ":")), claim_id=claim_id)
        if job.state.is_final:
            tx.committed.append(lambda: self.ended(job.kernel_hash))
            tx.committed.append(lambda: self.metrics.count("jobs_finished", state=job.state.value))
        self._advance(tx, job.id)

    def _advance(self, tx: Transaction, job_id: str) -> None:
        tx.jobs.advance(job_id, trials=tx.trials.count(job_id), last_event=tx.events.last_id(job_id))

    def _receipt(self, tx: Transaction, job_id: str, claim_id: str, *, missing: bool = False) -> Receipt:
        renewed = tx.jobs.renew(job_id, claim_id=claim_id, lease=self.lease)
        return Receipt(proceed=renewed, cancel=tx.jobs.get(job_id).cancel_requested, missing=missing)


def check_event(job: Job, event: TuneEvent) -> None:
    """Refuse what no search of the job can have found: other searches start from it, and other runs of the job.

    Raises:
        SchemaError: a record of another kernel, a size or a time that is none, a number that nothing can hold.
    """
    match event:
        case ShapeFinished() if event.record.kernel_hash != job.kernel_hash:
            raise SchemaError(
                f"record.kernel_hash: {event.record.kernel_hash[:64]!r} is not the kernel of job {job.id}",
                hint=f"{job.kernel_hash}; are worker and service of one version?",
            )
        case TrialFinished():
            check_sizes(event.shape, "trial.shape")
            check_trial(event.trial)
        case _:
            pass


def new_trial(event: TrialFinished, attempt: int) -> NewTrial:
    """The row of a trial: the columns that queries need, and the trial as the tuner wrote it."""
    trial = event.trial
    return NewTrial(
        trial_id=trial.id,
        phase=trial.phase,
        attempt=attempt,
        dtype=event.dtype,
        shape=json.dumps(dict(event.shape), sort_keys=True, separators=(",", ":")),
        status=trial.status,
        median_ns=trial.time_ns.median if trial.time_ns else None,
        bound=trial.measurement.bound if trial.measurement else None,
        body=json.dumps(trial.to_json(), separators=(",", ":")),
    )
