"""Which of the waiting jobs the engine is given: no more than there are workers free for them.

Dask would take them all, and settle at once which worker has which. How long a job takes it cannot know, so a device
would stand idle while jobs wait behind the one on another device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from . import ConnectedWorker
from .resources import resources_for


class Openings:
    """The workers that are connected, those with a job (``busy``, by name) aside, until jobs take them."""

    def __init__(self, workers: Iterable[ConnectedWorker], busy: Collection[str]) -> None:
        self._workers = [worker for worker in workers if not worker.draining]
        self._free = [worker for worker in self._workers if worker.name not in busy]

    def take(self, device: str) -> bool:
        """Whether a worker was free for a job with this device selector; it is not any more. Raises DeviceError for
        what is no selector."""
        wanted = resources_for(device)
        fitting = next((worker for worker in self._free if _offers(worker, wanted)), None)
        if fitting is not None:
            self._free.remove(fitting)
        return fitting is not None

    def has_any(self, device: str) -> bool:
        """Whether a worker for such jobs is connected, free or not. Raises DeviceError for what is no selector."""
        wanted = resources_for(device)
        return any(_offers(worker, wanted) for worker in self._workers)


def _offers(worker: ConnectedWorker, wanted: Mapping[str, float]) -> bool:
    return all(worker.resources.get(name, 0) >= amount for name, amount in wanted.items())
