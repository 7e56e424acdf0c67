"""What each worker does now: read off what is stored, so every server on a database says the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from .dispatch.roster import NOTE_S
from .store import Job, JobState, StoredWorker, Transaction, worker_name

_ABSENT_AFTER = timedelta(seconds=3 * NOTE_S)


class WorkerState(StrEnum):
    """``away``: nobody sees it. ``draining``: it gets no other job; one that it has goes on."""

    IDLE = "idle"
    RUNNING = "running"
    DRAINING = "draining"
    AWAY = "away"


@dataclass(frozen=True, slots=True)
class FleetWorker:
    """A worker, its state, and the job that it has."""

    worker: StoredWorker
    state: WorkerState
    job: Job | None


def fleet(tx: Transaction, *, now: datetime | None = None) -> list[FleetWorker]:
    """Every known worker, by host and device."""
    moment = now or datetime.now(UTC)
    running = {worker_name(job.worker): job for job in tx.jobs.in_state(JobState.RUNNING) if job.worker}
    return [_at_work(worker, running.get(worker.name), moment) for worker in tx.workers.all()]


def connected_workers(tx: Transaction) -> list[StoredWorker]:
    """The workers that jobs can be brought to now, drained or not, by host and device."""
    moment = datetime.now(UTC)
    return [worker for worker in tx.workers.all() if _is_connected(worker, moment)]


def fleet_worker(tx: Transaction, name: str) -> FleetWorker:
    """One of them.

    Raises:
        NotFound: no worker has this name.
    """
    worker = tx.workers.get(name)
    return next(each for each in fleet(tx) if each.worker.name == worker.name)


def _at_work(worker: StoredWorker, job: Job | None, now: datetime) -> FleetWorker:
    # A job is proof enough: its worker holds a lease.
    here = job is not None or _is_connected(worker, now)
    if not here:
        state = WorkerState.AWAY
    elif worker.draining:
        state = WorkerState.DRAINING
    else:
        state = WorkerState.IDLE if job is None else WorkerState.RUNNING
    return FleetWorker(worker, state, job)


def _is_connected(worker: StoredWorker, now: datetime) -> bool:
    return worker.connected and now - worker.last_seen < _ABSENT_AFTER
