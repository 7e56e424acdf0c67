"""A run's events on disk until the server has them: the reason why kill -9 loses no finished trial.

One log a run, ``<job id>.<run id>.jsonl``, each line ``{"sequence": n, "event": {...}}``. A file that nobody holds was
left behind by a process that died, and whoever finds it delivers it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from deuteron.compiler.errors import DeuteronError
from deuteron.tuner.codec import decode
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.event_log import EventLog
from deuteron.tuner.http import ServiceError, ServiceUnreachable

from .ingest import Delivery

logger = logging.getLogger("deuteron.worker")

_SUFFIX = ".jsonl"
#: Events of one delivery, which other writers wait for: they take some milliseconds each, and a server takes 1000.
AT_ONCE = 200
#: Their bytes: a server takes four times as many (``max_body_bytes``), and what it does not take is lost.
BYTES_AT_ONCE = 1 << 20
#: How long a file is kept that the server does not want.
KEPT_S = 30 * 86400.0


class Spool:
    """The spool of one run. ``append`` is durable against the death of this process when it returns, as long as the
    disk has room."""

    def __init__(self, folder: Path, job_id: str, claim_id: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{job_id}.{claim_id}{_SUFFIX}"
        self._log = EventLog(self.path)
        self._next = 1
        self._unsent: list[Delivery] = []
        #: The number of the last event that the server has stored.
        self.acknowledged = 0

    def append(self, event: dict[str, object]) -> bool:
        """Write an event with the next sequence number; whether it is on disk."""
        delivery = Delivery(self._next, event)
        self._next += 1
        try:
            self._log.append(delivery.to_json())
        except OSError as error:
            # A full disk is no reason to throw away what was measured: the server may have room.
            logger.warning("event %d is in memory only: %s", delivery.sequence, error)
            return False
        finally:
            self._unsent.append(delivery)
        return True

    def unsent(self, limit: int | None = None) -> list[Delivery]:
        """The oldest events that the server has not acknowledged; without a limit as many as one delivery takes."""
        return at_once(self._unsent) if limit is None else self._unsent[:limit]

    def acknowledge(self, count: int) -> None:
        """The server has the first ``count`` of the unsent events."""
        if count:
            self.acknowledged = self._unsent[count - 1].sequence
        self.drop(count)

    def drop(self, count: int) -> None:
        """The server does not want the first ``count`` of the unsent events, or not all of them."""
        del self._unsent[:count]

    def rewind(self) -> None:
        """The server has lost events: all of them are to be sent again, from the first one on."""
        known = {item.sequence: item for item in (*_read(self.path, self._log.recover()), *self._unsent)}
        self._unsent = [known[number] for number in sorted(known)]
        self.acknowledged = 0

    def close(self) -> None:
        """Let go of the file; it is deleted when everything in it was acknowledged."""
        if not self._unsent:
            self.path.unlink(missing_ok=True)
        self._log.close()


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a dead run left behind: all of its events, also those that the server has."""

    path: Path
    job_id: str
    claim_id: str
    deliveries: list[Delivery]

    def deliver(self, take: Callable[[str, str, Sequence[Delivery]], object]) -> None:
        """Have ``take``, of a link or a store, store the events, some at a time. What it does not want keeps no others
        from it, and is raised in the end; any other refusal is raised at once."""
        refusals: list[DeuteronError] = []
        sent = 0
        while batch := at_once(self.deliveries[sent:]):
            sent += len(batch)
            try:
                take(self.job_id, self.claim_id, batch)
            except ServiceUnreachable:
                raise
            except DeuteronError as error:
                if isinstance(error, ServiceError) and not is_unwanted(error.status):
                    raise
                refusals.append(error)
        if refusals:
            raise refusals[0]


def at_once(deliveries: list[Delivery]) -> list[Delivery]:
    """The first of them that go into one request: :data:`AT_ONCE`, of :data:`BYTES_AT_ONCE` together, but one at
    least."""
    size = 0
    for count, item in enumerate(deliveries[:AT_ONCE]):
        size += len(json.dumps(item.to_json()))
        if count and size > BYTES_AT_ONCE:
            return deliveries[:count]
    return deliveries[:AT_ONCE]


def is_unwanted(status: int) -> bool:
    """Whether a server that answers a delivery with this will not take it later, either: it does not know the job, or
    not what was reported. Any other refusal may be mended, such as that of a token."""
    return status in (400, 404, 413, 422)


def set_aside(leftover: Leftover) -> None:
    """Keep for a while what a server does not want. It may be another service's, whose workers have the same home, or
    that of a newer version."""
    if time.time() - leftover.path.stat().st_mtime > KEPT_S:
        leftover.path.unlink(missing_ok=True)


def leftovers(folder: Path) -> Iterator[Leftover]:
    """Spools whose writer is gone. Each is locked while the caller handles it; call ``path.unlink()``
    once its events are delivered. One that cannot be opened, such as of a worker that another user ran, keeps nobody
    from the others."""
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        job_id, _, claim_id = path.name.removesuffix(_SUFFIX).partition(".")
        try:
            with EventLog(path, create=False) as log:
                yield Leftover(path, job_id, claim_id, list(_read(path, log.recover())))
        except (BlockingIOError, FileNotFoundError):
            continue  # its run is alive, or someone else has just delivered it
        except OSError as error:
            _tell_once(path, error.strerror)


@lru_cache
def _tell_once(path: Path, reason: str | None) -> None:
    """Every job looks for leftovers, and a file that is in the way stays so."""
    logger.warning("%s is left where it is: %s", path, reason)


def _read(path: Path, lines: list[bytes]) -> Iterator[Delivery]:
    for number, line in enumerate(lines, start=1):
        try:
            yield decode(line, Delivery, f"{path}, line {number}")
        except SchemaError:
            continue  # zeros after a power cut: that event never counted as finished
