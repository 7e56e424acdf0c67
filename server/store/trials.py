"""Trials, appended as they finish and never changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, Row, func, insert, or_, select

from ..models import JobRow, TrialRow
from .errors import NotFound
from .records import FoundTrial, NewTrial, StoredTrial

_TABLE = TrialRow.__table__
#: Bounds the time that answering takes: a trial is a few KB of JSON.
MOST_FOUND = 10_000


@dataclass(frozen=True, slots=True)
class Trials:
    """Trials within one transaction. Writers hold the job's lock (:meth:`Jobs.lock`)."""

    connection: Connection

    def append(self, job_id: str, new: NewTrial) -> bool:
        """Store a trial unless it is stored already; whether it was new."""
        known = self.connection.execute(
            select(TrialRow.sequence).where(
                TrialRow.job_id == job_id,
                TrialRow.trial_id == new.trial_id,
            )
        ).first()
        if known is not None:
            return False
        self.connection.execute(
            insert(TrialRow).values(
                job_id=job_id,
                trial_id=new.trial_id,
                phase=new.phase,
                sequence=self.count(job_id) + 1,
                attempt=new.attempt,
                dtype=new.dtype,
                shape=new.shape,
                status=new.status,
                median_ns=new.median_ns,
                bound=new.bound,
                body=new.body,
                recorded_at=datetime.now(UTC),
            )
        )
        return True

    def page(self, job_id: str, *, after: int = 0, limit: int | None = None) -> list[StoredTrial]:
        """Trials of a job in order of arrival, with sequence numbers above ``after``."""
        query = select(_TABLE).where(TrialRow.job_id == job_id, TrialRow.sequence > after).order_by(TrialRow.sequence)
        if limit is not None:
            query = query.limit(limit)
        return [_trial(row) for row in self.connection.execute(query)]

    def get(self, job_id: str, trial_id: str) -> StoredTrial:
        """One trial.

        Raises:
            NotFound: the job has no such trial.
        """
        query = select(_TABLE).where(TrialRow.job_id == job_id, TrialRow.trial_id == trial_id)
        row = self.connection.execute(query).first()
        if row is None:
            raise NotFound(f"job {job_id} has no trial {trial_id}", hint=f"GET /v1/jobs/{job_id}/trials lists them")
        return _trial(row)

    def screened(self, job_id: str, *, limit: int) -> list[StoredTrial]:
        """The first screened trials of a job that worked, in the order of arrival."""
        query = (
            select(_TABLE)
            .where(TrialRow.job_id == job_id, TrialRow.phase == "screen", TrialRow.median_ns > 0)
            .order_by(TrialRow.sequence)
            .limit(limit)
        )
        return [_trial(row) for row in self.connection.execute(query)]

    def of_kernel(self, kernel: str, *, without: str | None = None, limit: int = MOST_FOUND) -> list[FoundTrial]:
        """Screened trials that worked, of all jobs of the kernel of this name or hash that said which device they ran
        on: newest jobs first, in the order of arrival within a job. ``without``: a job that is left out."""
        query = (
            select(
                JobRow.id.label("job_id"),
                JobRow.kernel_name,
                JobRow.kernel_hash,
                JobRow.device_key,
                TrialRow.shape,
                TrialRow.dtype,
                TrialRow.median_ns,
                TrialRow.body,
            )
            .join(TrialRow, TrialRow.job_id == JobRow.id)
            .where(
                or_(JobRow.kernel_name == kernel, JobRow.kernel_hash == kernel),
                JobRow.device_key.is_not(None),
                TrialRow.phase == "screen",
                TrialRow.status == "ok",
                TrialRow.median_ns > 0,
            )
            .order_by(JobRow.number.desc(), TrialRow.sequence)
            .limit(limit)
        )
        if without is not None:
            query = query.where(JobRow.id != without)
        return [FoundTrial(**row._mapping) for row in self.connection.execute(query)]

    def count(self, job_id: str) -> int:
        """How many trials of a job are stored."""
        query = select(func.coalesce(func.max(TrialRow.sequence), 0)).where(TrialRow.job_id == job_id)
        return int(self.connection.execute(query).scalar_one())

    def count_screened(self, job_id: str) -> int:
        """Trials that the budget counts: races and finals come on top of it."""
        query = select(func.count()).where(TrialRow.job_id == job_id, TrialRow.phase == "screen")
        return int(self.connection.execute(query).scalar_one())

    def count_by_status(self) -> dict[str, int]:
        """Number of trials of all jobs, by status."""
        query = select(TrialRow.status, func.count()).group_by(TrialRow.status)
        return {str(status): int(count) for status, count in self.connection.execute(query)}


def _trial(row: Row[tuple[object, ...]]) -> StoredTrial:
    return StoredTrial(**row._mapping)
