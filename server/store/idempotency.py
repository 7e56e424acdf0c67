"""Idempotency keys: a repeated submission finds the job that the first one made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, delete, select

from ..models import IdempotencyRow
from .errors import Conflict, KeyIsTaken
from .writes import insert_unless_present

KEPT_FOR = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class IdempotencyKeys:
    """Keys within one transaction; keys of different owners never meet."""

    connection: Connection

    def find(self, owner: str, key: str, *body_sha256: str) -> str | None:
        """The id of the job that this key made from the body that has one of these fingerprints, None for a fresh key.

        Raises:
            Conflict: the key was used with another body.
        """
        row = self.connection.execute(
            select(IdempotencyRow.body_sha256, IdempotencyRow.job_id).where(
                IdempotencyRow.owner == owner,
                IdempotencyRow.key == key,
                IdempotencyRow.created_at > datetime.now(UTC) - KEPT_FOR,
            )
        ).first()
        if row is None:
            return None
        if row.body_sha256 not in body_sha256:
            raise Conflict(
                f"Idempotency-Key {key!r} was used for job {row.job_id} with a different body",
                hint="use a new key for a new request",
            )
        return str(row.job_id)

    def add(self, owner: str, key: str, body_sha256: str, job_id: str) -> None:
        """Remember the key, and forget keys that have aged out.

        Raises:
            KeyIsTaken: another server remembers the key since :meth:`find` did not.
        """
        self.connection.execute(delete(IdempotencyRow).where(IdempotencyRow.created_at <= datetime.now(UTC) - KEPT_FOR))
        values: dict[str, object] = {
            "owner": owner,
            "key": key,
            "body_sha256": body_sha256,
            "job_id": job_id,
            "created_at": datetime.now(UTC),
        }
        if not insert_unless_present(self.connection, IdempotencyRow, values):
            raise KeyIsTaken(f"Idempotency-Key {key!r} is being used by another request", hint="send it again")
