"""What the store refuses. The API gives each class one HTTP status."""

from __future__ import annotations

from deuteron.compiler.errors import DeuteronError


class StoreError(DeuteronError):
    """Base of the store's refusals."""


class NotFound(StoreError):
    """No such kernel, job, config, device, worker or token."""


class Conflict(StoreError):
    """The request contradicts what is stored: an Idempotency-Key was used with another body, a record's
    id for another key."""


class KeyIsTaken(StoreError):
    """Another server has just made a job of the same Idempotency-Key, which is found now."""


class TooLong(StoreError):
    """A text is longer than what the tables keep of its kind."""


class JobIsFinal(StoreError):
    """The job has ended; nothing can be claimed or added for it."""


class JobIsTaken(StoreError):
    """Another run has the job and is alive."""


class WorkerIsDraining(StoreError):
    """The worker finishes what it has and gets no other job."""


class InvalidToken(StoreError):
    """The bearer token is unknown, expired or revoked."""
