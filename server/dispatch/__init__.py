"""From a queued job to a worker that measures it.

Dask decides where and keeps devices exclusive; the database decides what is true. Dask is told a job's id
and nothing else, so everything that it forgets when a process dies can be put together again from the store
and from the spools of the workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ConnectedWorker:
    """A worker that the engine sees now, ``device@host/pid``, and the resources it offers.

    One that is ``draining`` gets no other job.
    """

    address: str
    name: str
    resources: dict[str, float]
    draining: bool = False


class Dispatcher(Protocol):
    """Brings queued jobs to workers until it is closed."""

    def start(self, server_url: str) -> None:
        """Begin. ``server_url`` is where workers find the service; returns before workers are up."""

    def wake(self) -> None:
        """A job was queued or cancelled: look now instead of at the next round."""

    @property
    def leads(self) -> bool:
        """Whether this process is the one that dispatches the jobs of its database."""

    def devices(self) -> list[str] | None:
        """Device names this engine will ever have, None when workers may join later."""

    def close(self) -> None:
        """Stop. Jobs that were running go back to the queue."""


class NoDispatcher:
    """Leaves jobs in the queue: for a server process that only answers requests."""

    def start(self, server_url: str) -> None:
        """Nothing to begin."""

    def wake(self) -> None:
        """Nobody to wake."""

    @property
    def leads(self) -> bool:
        """False."""
        return False

    def devices(self) -> list[str] | None:
        """None: another process decides."""
        return None

    def close(self) -> None:
        """Nothing to stop."""
