"""Jobs and their state machine. Every change of state is one guarded UPDATE in a write transaction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Row, Select, func, insert, or_, select, update

from ..models import JobRow
from .errors import JobIsFinal, JobIsTaken, NotFound
from .records import Job, JobState, NewJob
from .writes import fitting

_TABLE = JobRow.__table__
_OPEN = (JobState.QUEUED.value, JobState.RUNNING.value)


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs within one transaction."""

    connection: Connection

    def add(self, new: NewJob) -> Job:
        """Store a job as queued. Raises as :func:`.writes.fitting`."""
        self.connection.execute(
            insert(JobRow).values(
                **fitting(JobRow, asdict(new)),
                state=JobState.QUEUED.value,
                trials_done=0,
                screened=0,
                last_event=0,
                attempts=0,
                cancel_requested=False,
                created_at=datetime.now(UTC),
            )
        )
        return self.get(new.id)

    def get(self, job_id: str) -> Job:
        """Raises:
        NotFound: no job has this id.
        """
        return self._one(select(_TABLE).where(JobRow.id == job_id), job_id)

    def lock(self, job_id: str) -> Job:
        """The job, held against other writers until this transaction ends.

        Raises:
            NotFound: no job has this id.
        """
        return self._one(select(_TABLE).where(JobRow.id == job_id).with_for_update(), job_id)

    def page(
        self,
        *,
        before: int | None = None,
        limit: int = 50,
        state: JobState | None = None,
        kernel: str = "",
        device: str = "",
    ) -> list[Job]:
        """Jobs, newest first, with numbers below ``before``; ``kernel`` and ``device`` are parts of their names."""
        query = select(_TABLE).order_by(JobRow.number.desc()).limit(limit)
        if kernel:
            query = query.where(JobRow.kernel_name.icontains(kernel, autoescape=True))
        if device:
            query = query.where(
                or_(
                    JobRow.device.icontains(device, autoescape=True),
                    JobRow.device_key.icontains(device, autoescape=True),
                )
            )
        if before is not None:
            query = query.where(JobRow.number < before)
        if state is not None:
            query = query.where(JobRow.state == state.value)
        return [_job(row) for row in self.connection.execute(query)]

    def in_state(self, *states: JobState) -> list[Job]:
        """Every job in one of the states, oldest first."""
        query = select(_TABLE).where(JobRow.state.in_([state.value for state in states])).order_by(JobRow.number)
        return [_job(row) for row in self.connection.execute(query)]

    def waiting(self, *, limit: int) -> list[tuple[int, str, str]]:
        """Number, id and device of the ``limit`` oldest queued jobs for each device, oldest first: jobs are numbered as
        they come."""
        queued = JobRow.state == JobState.QUEUED.value
        devices = self.connection.execute(select(JobRow.device).where(queued).distinct()).scalars().all()
        found: list[tuple[int, str, str]] = []
        for device in devices:
            query = select(JobRow.number, JobRow.id, JobRow.device).where(queued, JobRow.device == device)
            rows = self.connection.execute(query.order_by(JobRow.number).limit(limit))
            found += [(row.number, row.id, row.device) for row in rows]
        return sorted(found)

    def at_workers(self, unfinished: Collection[str] = ()) -> set[str]:
        """The workers, ``device@host/pid``, that have a job which runs, or one of the jobs ``unfinished``."""
        query = select(JobRow.worker).where(or_(JobRow.state == JobState.RUNNING.value, JobRow.id.in_(unfinished)))
        return {worker for worker in self.connection.execute(query).scalars() if worker is not None}

    def never_started(self, job_ids: Collection[str], state: JobState) -> set[str]:
        """Those of ``job_ids`` that are in ``state`` and that no run has claimed."""
        query = select(JobRow.id).where(JobRow.id.in_(job_ids), JobRow.state == state.value, JobRow.attempts == 0)
        return set(self.connection.execute(query).scalars())

    def overdue(self, now: datetime) -> list[Job]:
        """Running jobs whose lease is over."""
        query = select(_TABLE).where(JobRow.state == JobState.RUNNING.value, JobRow.lease_expires_at < now)
        return [_job(row) for row in self.connection.execute(query)]

    def screened(self) -> dict[str, int]:
        """How many trials were screened of each kernel that has any, by its hash. Reads every job."""
        query = select(JobRow.kernel_hash, func.sum(JobRow.screened)).where(JobRow.screened > 0)
        return {row[0]: int(row[1]) for row in self.connection.execute(query.group_by(JobRow.kernel_hash))}

    def screened_of(self, kernel_hash: str) -> int:
        """How many trials of a kernel were screened."""
        query = select(func.coalesce(func.sum(JobRow.screened), 0)).where(JobRow.kernel_hash == kernel_hash)
        return int(self.connection.execute(query).scalar_one())

    def measured(self, kernel_hash: str, *, limit: int) -> list[tuple[str, str]]:
        """Id and device key of the newest ``limit`` jobs of a kernel on each device, newest first."""
        of_kernel = JobRow.kernel_hash == kernel_hash
        devices = self.connection.execute(
            select(JobRow.device_key).where(of_kernel, JobRow.device_key.is_not(None)).distinct()
        ).scalars()
        found: list[tuple[int, str, str]] = []
        for device_key in devices.all():
            query = select(JobRow.number, JobRow.id).where(of_kernel, JobRow.device_key == device_key)
            rows = self.connection.execute(query.order_by(JobRow.number.desc()).limit(limit))
            found += [(row.number, row.id, str(device_key)) for row in rows]
        return [(job_id, device_key) for _, job_id, device_key in sorted(found, reverse=True)]

    def count_by_state(self) -> dict[JobState, int]:
        """Number of jobs in each state, zeros included."""
        query = select(JobRow.state, func.count()).group_by(JobRow.state)
        found = {JobState(state): count for state, count in self.connection.execute(query)}
        return {state: found.get(state, 0) for state in JobState}

    def claim(self, job_id: str, *, claim_id: str, worker: str, lease: timedelta) -> Job:
        """Give the job to a run.

        ``claim_id`` is ``<ticket>.<run>``. A repeated claim by the same run changes nothing. Another run of
        the same ticket takes over at once: the engine starts it only when the first is gone. A run with
        another ticket has to wait until the lease is over.

        Raises:
            JobIsFinal: the job has ended.
            JobIsTaken: another run has it.
            NotFound: no job has this id.
        """
        job = self.lock(job_id)
        if job.state.is_final:
            raise JobIsFinal(f"job {job_id} is {job.state}", hint="submit it again")
        if job.claim_id == claim_id and job.state is JobState.RUNNING:
            return job
        now = datetime.now(UTC)
        same_ticket = (job.claim_id or "").split(".")[0] == claim_id.split(".")[0]
        leased = job.lease_expires_at is not None and job.lease_expires_at > now
        if job.state is JobState.RUNNING and leased and not same_ticket:
            raise JobIsTaken(f"job {job_id} is running on {job.worker}")
        self._set(
            job_id,
            state=JobState.RUNNING.value,
            attempts=job.attempts + 1,
            claim_id=claim_id,
            worker=worker,
            started_at=job.started_at or now,
            lease_expires_at=now + lease,
        )
        return self.get(job_id)

    def renew(self, job_id: str, *, claim_id: str, lease: timedelta) -> bool:
        """Extend the lease; False when this run no longer owns the job."""
        result = self.connection.execute(
            update(JobRow)
            .where(
                JobRow.id == job_id,
                JobRow.claim_id == claim_id,
                JobRow.state == JobState.RUNNING.value,
            )
            .values(lease_expires_at=datetime.now(UTC) + lease)
        )
        return result.rowcount == 1

    def requeue(self, job_id: str, *, refund: bool = False) -> Job:
        """Put a running job whose run is gone back into the queue; other states stay as they are.
        ``refund`` takes the attempt back."""
        self.connection.execute(
            update(JobRow)
            .where(JobRow.id == job_id, JobRow.state == JobState.RUNNING.value)
            .values(
                state=JobState.QUEUED.value,
                attempts=JobRow.attempts - int(refund),
                claim_id=None,
                worker=None,
                lease_expires_at=None,
            )
        )
        return self.get(job_id)

    def request_cancel(self, job_id: str) -> Job:
        """Note the wish. A queued job ends at once; a running one when its worker hears of it."""
        job = self.lock(job_id)
        if job.state is JobState.QUEUED:
            self._set(job_id, cancel_requested=True)
            return self.finish(job_id, JobState.CANCELLED)
        if job.state is JobState.RUNNING and not job.cancel_requested:
            self._set(job_id, cancel_requested=True)
        return self.get(job_id)

    def finish(self, job_id: str, state: JobState, *, error: str | None = None) -> Job:
        """End the job. Ending an ended job changes nothing."""
        self.connection.execute(
            update(JobRow)
            .where(JobRow.id == job_id, JobRow.state.in_(_OPEN))
            .values(
                state=state.value,
                error=error,
                finished_at=datetime.now(UTC),
                lease_expires_at=None,
            )
        )
        return self.get(job_id)

    def advance(self, job_id: str, *, trials: int, last_event: int) -> None:
        """Record how many trials and events the job now has."""
        self._set(job_id, trials_done=trials, last_event=last_event)

    def count_screened(self, job_id: str) -> None:
        """One more trial of those that the budget counts: counting them all would cost more with each."""
        self._set(job_id, screened=JobRow.screened + 1)

    def name_device(self, job_id: str, device_key: str) -> None:
        """Note which device a run of the job found."""
        self._set(job_id, device_key=device_key)

    def owned(self, job_id: str, claim_id: str) -> Job:
        """The job, held as by :meth:`lock`, that a run has.

        Raises:
            JobIsFinal: the job has ended.
            JobIsTaken: it is not this run's.
            NotFound: no job has this id.
        """
        job = self.lock(job_id)
        if job.state.is_final:
            raise JobIsFinal(f"job {job_id} is {job.state}", hint="a run hands over what it has before it ends the job")
        if job.state is not JobState.RUNNING or job.claim_id != claim_id:
            raise JobIsTaken(f"job {job_id} is not this run's", hint="POST /v1/worker/jobs/{id}/claim first")
        return job

    def is_profile_of_any(self, sha256: str) -> bool:
        """Whether a job has this profile."""
        query = select(JobRow.id).where(JobRow.profile_sha256 == sha256).limit(1)
        return self.connection.execute(query).first() is not None

    def attach_profile(self, job_id: str, sha256: str) -> None:
        """Name the profile of a job by its digest."""
        self._set(job_id, profile_sha256=sha256)

    def _set(self, job_id: str, **values: object) -> None:
        self.connection.execute(update(JobRow).where(JobRow.id == job_id).values(**values))

    def _one(self, query: Select[tuple[object, ...]], job_id: str) -> Job:
        row = self.connection.execute(query).first()
        if row is None:
            raise NotFound(f"there is no job {job_id}", hint="GET /v1/jobs lists them")
        return _job(row)


def _job(row: Row[tuple[object, ...]]) -> Job:
    values = dict(row._mapping)
    values["state"] = JobState(values["state"])
    return Job(**values)
