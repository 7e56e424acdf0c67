"""A job's event log: the source of the SSE stream, numbered without gaps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, insert, select

from ..models import EventRow
from .records import StoredEvent


@dataclass(frozen=True, slots=True)
class Events:
    """Events within one transaction. Writers hold the job's lock (:meth:`Jobs.lock`)."""

    connection: Connection

    def append(
        self,
        job_id: str,
        kind: str,
        body: str,
        *,
        claim_id: str | None = None,
        sequence: int | None = None,
    ) -> int:
        """Store an event and return its id. ``claim_id`` and ``sequence`` name a worker's delivery; ``claim_id`` alone
        names the run that got the job with it."""
        event_id = self.last_id(job_id) + 1
        self.connection.execute(
            insert(EventRow).values(
                job_id=job_id,
                id=event_id,
                kind=kind,
                body=body,
                claim_id=claim_id,
                sequence=sequence,
                created_at=datetime.now(UTC),
            )
        )
        return event_id

    def delivered(self, job_id: str, claim_id: str, among: Collection[int] | None = None) -> set[int]:
        """Sequence numbers that this run has already delivered, all or those ``among`` some."""
        query = select(EventRow.sequence).where(EventRow.job_id == job_id, EventRow.claim_id == claim_id)
        if among is not None:
            query = query.where(EventRow.sequence.in_(among))
        return {number for (number,) in self.connection.execute(query) if number is not None}

    def last_run(self, job_id: str) -> str | None:
        """The run that a job was given to last; None where it was given to none."""
        given = (EventRow.job_id == job_id, EventRow.kind == "job_state", EventRow.claim_id.is_not(None))
        query = select(EventRow.claim_id).where(*given).order_by(EventRow.id.desc()).limit(1)
        return self.connection.execute(query).scalar_one_or_none()

    def knows_run(self, job_id: str, claim_id: str) -> bool:
        """Whether the run got the job at some time, or has delivered to it."""
        query = select(EventRow.id).where(EventRow.job_id == job_id, EventRow.claim_id == claim_id).limit(1)
        return self.connection.execute(query).first() is not None

    def last_id(self, job_id: str) -> int:
        """The id of a job's last event, 0 before the first."""
        query = select(func.coalesce(func.max(EventRow.id), 0)).where(EventRow.job_id == job_id)
        return int(self.connection.execute(query).scalar_one())

    def of_kind(self, job_id: str, kind: str) -> list[str]:
        """The texts of a job's events of one kind, in order."""
        query = select(EventRow.body).where(EventRow.job_id == job_id, EventRow.kind == kind).order_by(EventRow.id)
        return list(self.connection.execute(query).scalars())

    def page(self, job_id: str, *, after: int = 0, limit: int = 500) -> list[StoredEvent]:
        """Events with ids above ``after``, in order."""
        query = (
            select(EventRow.job_id, EventRow.id, EventRow.kind, EventRow.body, EventRow.created_at)
            .where(EventRow.job_id == job_id, EventRow.id > after)
            .order_by(EventRow.id)
            .limit(limit)
        )
        return [StoredEvent(**row._mapping) for row in self.connection.execute(query)]
