"""A run's events on disk until the server has them: the reason why kill -9 loses no finished trial.

One file a run, ``<job id>.<run id>.jsonl``, each line ``{"sequence": n, "event": {...}}``. The writer holds
a lock on its file; a file that nobody holds was left behind by a process that died, and whoever finds it
delivers it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from .ingest import Delivery

_SUFFIX = ".jsonl"


class Spool:
    """The spool of one run. ``append`` is durable against the death of this process when it returns."""

    def __init__(self, folder: Path, job_id: str, claim_id: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{job_id}.{claim_id}{_SUFFIX}"
        self._file = FileIO(str(self.path), "a+")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._next = 1
        self._unsent: list[Delivery] = []

    def append(self, event: dict[str, object]) -> None:
        delivery = Delivery(self._next, event)
        self._next += 1
        # One write call: a kill between two would leave half a line. fsync guards against a power cut.
        self._file.write(_line(delivery))
        os.fsync(self._file.fileno())
        self._unsent.append(delivery)

    def unsent(self, limit: int = 200) -> list[Delivery]:
        """The oldest events that the server has not acknowledged."""
        return self._unsent[:limit]

    def acknowledge(self, count: int) -> None:
        """The server has the first ``count`` of the unsent events."""
        del self._unsent[:count]

    def close(self) -> None:
        """Let go of the file; it is deleted when everything in it was acknowledged."""
        if not self._unsent:
            self.path.unlink(missing_ok=True)
        self._file.close()


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a dead run left behind."""

    path: Path
    job_id: str
    claim_id: str
    deliveries: list[Delivery]


def leftovers(folder: Path) -> Iterator[Leftover]:
    """Spools whose writer is gone. Each is locked while the caller handles it; call ``path.unlink()``
    once its events are delivered."""
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        job_id, _, claim_id = path.name.removesuffix(_SUFFIX).partition(".")
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield Leftover(path, job_id, claim_id, list(_read(file.read())))
        except (BlockingIOError, FileNotFoundError):
            continue  # its run is alive, or someone else has just delivered it


def _line(delivery: Delivery) -> bytes:
    document = {"sequence": delivery.sequence, "event": delivery.event}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _read(content: bytes) -> Iterator[Delivery]:
    for line in content.splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            return  # the last line, cut off when the process died: that event never counted as finished
        yield Delivery(int(document["sequence"]), dict(document["event"]))
