"""Trials, appended as they finish and never changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, Row, func, insert, or_, select

from ..models import JobRow, TrialRow
from .errors import NotFound
from .records import FoundSearch, NewTrial, ScreenedTime, StoredTrial
from .writes import fitting

_TABLE = TrialRow.__table__
#: Bound the time that answering takes: jobs, and of each search the trials that are looked at, from its first one on.
MOST_JOBS, MOST_LOOKED_AT = 500, 5_000
# Values in one IN clause.
_AT_ONCE = 500
# Trials of the races and finals of a search: an attempt has a dozen.
_MOST_DECIDED = 100


@dataclass(frozen=True, slots=True)
class Trials:
    """Trials within one transaction. Writers hold the job's lock (:meth:`Jobs.lock`)."""

    connection: Connection

    def append(self, job_id: str, new: NewTrial) -> bool:
        """Store a trial unless it is stored already; whether it was new. Raises as :func:`.writes.fitting`."""
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
                **fitting(TrialRow, asdict(new)),
                job_id=job_id,
                sequence=self.count(job_id) + 1,
                best=self._is_best(job_id, new),
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

    def newest(
        self, job_id: str, *, before: int | None = None, limit: int, status: str | None = None, phase: str | None = None
    ) -> list[StoredTrial]:
        """Trials of a job, newest first, with sequence numbers below ``before``; of one status or of one phase."""
        query = select(_TABLE).where(TrialRow.job_id == job_id).order_by(TrialRow.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(TrialRow.sequence < before)
        if status is not None:
            query = query.where(TrialRow.status == status)
        if phase is not None:
            query = query.where(TrialRow.phase == phase)
        return [_trial(row) for row in self.connection.execute(query)]

    def sample(self, job_id: str, *, at_most: int) -> list[StoredTrial]:
        """Trials of a job in order of arrival, all of them or ``at_most``, evenly spaced: it reads no more of a larger
        job."""
        count = self.count(job_id)
        if count <= at_most:
            return self.page(job_id)
        chosen = [1 + place * (count - 1) // (at_most - 1) for place in range(at_most)]
        query = select(_TABLE).where(TrialRow.job_id == job_id, TrialRow.sequence.in_(chosen))
        return [_trial(row) for row in self.connection.execute(query.order_by(TrialRow.sequence))]

    def best(self, job_id: str, *, limit: int) -> list[StoredTrial]:
        """Trials that were the best of their search when they arrived, by search, in order of arrival."""
        query = select(_TABLE).where(TrialRow.job_id == job_id, TrialRow.best)
        query = query.order_by(TrialRow.dtype, TrialRow.shape, TrialRow.sequence).limit(limit)
        return [_trial(row) for row in self.connection.execute(query)]

    def searches(self, name: str, kernel_hash: str, *, without: str | None = None) -> list[FoundSearch]:
        """Searches that measured something, of the newest jobs of the kernel of this name or hash that said which
        device they run on (:data:`MOST_JOBS`), running ones too: newest jobs first, of each job in the order in which
        they began. ``without``: a job to leave out."""
        of_kernel = or_(JobRow.kernel_name == name, JobRow.kernel_hash == kernel_hash)
        query = (
            select(JobRow.id, JobRow.kernel_name, JobRow.kernel_hash, JobRow.device_key)
            .where(of_kernel, JobRow.device_key.is_not(None), JobRow.id != (without or ""))
            .order_by(JobRow.number.desc())
            .limit(MOST_JOBS)
        )
        jobs = self.connection.execute(query).all()
        # The first trial that worked was the best so far: a few rows of each search are in the index of the best. In a
        # join SQLite would read all trials.
        firsts = (
            select(TrialRow.job_id, TrialRow.shape, TrialRow.dtype, func.min(TrialRow.sequence).label("first"))
            .where(TrialRow.job_id.in_([job.id for job in jobs]), TrialRow.best)
            .group_by(TrialRow.job_id, TrialRow.dtype, TrialRow.shape)
            .order_by("first")
        )
        found: dict[str, list[FoundSearch]] = {}
        of = {job.id: job for job in jobs}
        for row in self.connection.execute(firsts):
            job = of[row.job_id]
            named = {"kernel_name": job.kernel_name, "kernel_hash": job.kernel_hash, "device_key": job.device_key}
            found.setdefault(job.id, []).append(FoundSearch(**named, **row._mapping))
        return [search for job in jobs for search in found.get(job.id, ())]

    def fastest(self, search: FoundSearch, *, limit: int) -> list[tuple[float, str]]:
        """Times in ns and bodies of screened trials of a search that worked, fastest first; of a very long search those
        of its beginning (:data:`MOST_LOOKED_AT`)."""
        until = search.first + MOST_LOOKED_AT
        query = (
            select(TrialRow.median_ns, TrialRow.body)
            .where(TrialRow.job_id == search.job_id, TrialRow.phase == "screen")
            .where(TrialRow.sequence >= search.first, TrialRow.sequence < until)
            .where(TrialRow.shape == search.shape, TrialRow.dtype == search.dtype)
            .where(TrialRow.status == "ok", TrialRow.median_ns > 0)
            .order_by(TrialRow.median_ns, TrialRow.sequence)
            .limit(limit)
        )
        return [(row.median_ns or 0.0, row.body) for row in self.connection.execute(query)]

    def decided(self, job_id: str, shape: str, dtype: str) -> list[str]:
        """Bodies of the newest trials of the races and finals of a search, in the order of arrival."""
        found: list[tuple[int, str]] = []
        # Each phase for itself: of both together SQLite reads the whole job backwards.
        for phase in ("race", "final"):
            query = (
                select(TrialRow.sequence, TrialRow.body)
                .where(TrialRow.job_id == job_id, TrialRow.phase == phase)
                .where(TrialRow.shape == shape, TrialRow.dtype == dtype)
                .order_by(TrialRow.sequence.desc())
                .limit(_MOST_DECIDED)
            )
            found += [(row.sequence, row.body) for row in self.connection.execute(query)]
        return [body for _, body in sorted(found)[-_MOST_DECIDED:]]

    def timings(self, job_id: str, *, limit: int) -> list[ScreenedTime]:
        """Screened trials of a job that worked, in the order of arrival, at most ``limit``, without their bodies."""
        query = (
            select(TrialRow.sequence, TrialRow.shape, TrialRow.dtype, TrialRow.median_ns)
            .where(TrialRow.job_id == job_id, TrialRow.phase == "screen")
            .where(TrialRow.status == "ok", TrialRow.median_ns > 0)
            .order_by(TrialRow.sequence)
            .limit(limit)
        )
        return [ScreenedTime(**row._mapping) for row in self.connection.execute(query)]

    def bodies(self, job_id: str, sequences: Sequence[int]) -> dict[int, str]:
        """Trials of a job as the tuner wrote them, by their sequence numbers."""
        found: dict[int, str] = {}
        for start in range(0, len(sequences), _AT_ONCE):
            some = TrialRow.sequence.in_(sequences[start : start + _AT_ONCE])
            query = select(TrialRow.sequence, TrialRow.body).where(TrialRow.job_id == job_id, some)
            found |= {row.sequence: row.body for row in self.connection.execute(query)}
        return found

    def searched(self, job_id: str) -> list[tuple[str, str]]:
        """Dtype and shape of the searches of a job in which something worked; read from an index alone."""
        query = select(TrialRow.dtype, TrialRow.shape).where(TrialRow.job_id == job_id, TrialRow.best).distinct()
        return [(row.dtype, row.shape) for row in self.connection.execute(query)]

    def count(self, job_id: str) -> int:
        """How many trials of a job are stored."""
        query = select(func.coalesce(func.max(TrialRow.sequence), 0)).where(TrialRow.job_id == job_id)
        return int(self.connection.execute(query).scalar_one())

    def _is_best(self, job_id: str, new: NewTrial) -> bool:
        if new.phase != "screen" or new.median_ns is None:
            return False
        search = (TrialRow.job_id == job_id, TrialRow.dtype == new.dtype, TrialRow.shape == new.shape, TrialRow.best)
        # Each was faster than those before it, so the last one is the fastest.
        query = select(TrialRow.median_ns).where(*search).order_by(TrialRow.sequence.desc()).limit(1)
        fastest = self.connection.execute(query).scalar()
        return fastest is None or new.median_ns < fastest


def _trial(row: Row[tuple[object, ...]]) -> StoredTrial:
    return StoredTrial(**row._mapping)
