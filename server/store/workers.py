"""Workers as the fleet knows them: by a name that outlives their processes, seen or away, drained or not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, delete, select, update

from ..models import WorkerRow
from .errors import NotFound
from .records import StoredWorker
from .writes import fitting, insert_unless_present

_TABLE = WorkerRow.__table__
#: A worker that nobody has seen for so long, and that is not drained, is forgotten: hosts of a cluster come and go.
FORGOTTEN_AFTER = timedelta(days=30)


def worker_name(process: str) -> str:
    """``device@host`` of a process that calls itself ``device@host/pid``."""
    return process.rpartition("/")[0] or process


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers within one transaction."""

    connection: Connection

    def announce(self, process: str, *, device_key: str | None, toolchain: str | None) -> None:
        """Note that a process has begun to measure, and what it says of itself."""
        now = datetime.now(UTC)
        said: dict[str, object] = {
            "process": process,
            "device_key": device_key,
            "toolchain": toolchain,
            "connected": True,
            "last_seen": now,
        }
        name = worker_name(process)
        refresh = update(WorkerRow).where(WorkerRow.name == name).values(**fitting(WorkerRow, said))
        if self.connection.execute(refresh).rowcount == 0 and not insert_unless_present(
            self.connection, WorkerRow, {**said, "name": name, "first_seen": now}
        ):
            self.connection.execute(refresh)

    def see(self, names: Collection[str]) -> None:
        """Note that these workers are connected now and no others; those of them that never announced themselves become
        known."""
        now = datetime.now(UTC)
        known = set(self.connection.execute(select(WorkerRow.name)).scalars())
        here = WorkerRow.name.in_(names)
        self.connection.execute(update(WorkerRow).where(here).values(connected=True, last_seen=now))
        self.connection.execute(update(WorkerRow).where(~here, WorkerRow.connected).values(connected=False))
        for name in sorted(set(names) - known):
            new = {"name": name, "process": name, "connected": True, "first_seen": now, "last_seen": now}
            insert_unless_present(self.connection, WorkerRow, new)
        old = WorkerRow.last_seen < now - FORGOTTEN_AFTER
        self.connection.execute(delete(WorkerRow).where(old, WorkerRow.drained_at.is_(None)))

    def get(self, name: str) -> StoredWorker:
        """Raises:
        NotFound: no worker has this name.
        """
        row = self.connection.execute(select(_TABLE).where(WorkerRow.name == name)).first()
        if row is None:
            raise NotFound(f"there is no worker {name!r}", hint="GET /v1/workers lists them: device@host")
        return StoredWorker(**row._mapping)

    def all(self) -> list[StoredWorker]:
        """All workers by host and device."""
        found = [StoredWorker(**row._mapping) for row in self.connection.execute(select(_TABLE))]
        return sorted(found, key=lambda worker: (worker.host, worker.device))

    def drained(self) -> set[str]:
        """Names of those that are given no job."""
        return set(self.connection.execute(select(WorkerRow.name).where(WorkerRow.drained_at.is_not(None))).scalars())

    def drain(self, name: str, *, who: str) -> StoredWorker:
        """Give the worker no other job. Draining again keeps the first time and name; raises as :meth:`get`."""
        drained = update(WorkerRow).where(WorkerRow.name == name, WorkerRow.drained_at.is_(None))
        self.connection.execute(drained.values(drained_at=datetime.now(UTC), drained_by=who))
        return self.get(name)

    def resume(self, name: str) -> StoredWorker:
        """Give the worker jobs again, if it was drained; raises as :meth:`get`."""
        self.connection.execute(
            update(WorkerRow).where(WorkerRow.name == name).values(drained_at=None, drained_by=None)
        )
        return self.get(name)
