"""Which workers are connected, and which of them may be given a job."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ..store import ServiceStore, worker_name
from . import ConnectedWorker

if TYPE_CHECKING:
    from .engine import Engine

logger = logging.getLogger("deuteron.dispatch")

_LOOK_S = 1.0
#: How often the database is told who is there while nothing changes. Readers take three of these for absence.
NOTE_S = 10.0


class Roster:
    """What the server that dispatches knows of its workers. The database keeps it for the others, and for the next one;
    which workers are drained is read from there."""

    def __init__(self, store: ServiceStore) -> None:
        self._store = store
        self.clear()

    def clear(self) -> None:
        """Nobody is known to be there: the scheduler is gone."""
        #: Those that the scheduler saw a moment ago.
        self.workers: list[ConnectedWorker] = []
        self._asked_at = self._noted_at = float("-inf")
        self._noted: frozenset[str] = frozenset()

    def look(self, engine: Engine) -> bool:
        """Ask the scheduler who is there, once a second at most; whether it was asked."""
        now = time.monotonic()
        if now - self._asked_at < _LOOK_S:
            return False
        self._asked_at = now
        try:
            found = engine.workers()
        except (OSError, RuntimeError, TimeoutError) as error:
            logger.debug("the scheduler does not tell its workers: %s", error)
            self.workers = []
            return True
        with self._store.read() as tx:
            drained = tx.workers.drained()
        self.workers = [replace(worker, draining=worker_name(worker.name) in drained) for worker in found]
        self._note(frozenset(worker_name(worker.name) for worker in found), now)
        return True

    def admitted(self) -> frozenset[str] | None:
        """Addresses of the workers that may be given a job; None for all, those that join later included."""
        if not any(worker.draining for worker in self.workers):
            return None
        return frozenset(worker.address for worker in self.workers if not worker.draining)

    def note_nobody(self) -> None:
        """Tell the database at once that the workers have gone, or the scheduler that reaches them."""
        self._note(frozenset(), time.monotonic())

    def _note(self, names: frozenset[str], now: float) -> None:
        if names == self._noted and now - self._noted_at < NOTE_S:
            return
        with self._store.write() as tx:
            tx.workers.see(names)
        self._noted, self._noted_at = names, now
