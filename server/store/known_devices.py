"""Devices that workers announced."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, select, update

from ..models import DeviceRow
from .records import StoredDevice
from .writes import fitting, insert_unless_present, raise_counters

_TABLE = DeviceRow.__table__
#: The version counter of the devices.
DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices within one transaction."""

    connection: Connection

    def announce(self, *, key: str, kind: str, name: str, fingerprint: str, worker: str) -> None:
        """Note that a worker has this device now. Raises as :func:`.writes.fitting`."""
        now = datetime.now(UTC)
        current: dict[str, object] = {
            "fingerprint": fingerprint,
            "kind": kind,
            "last_seen": now,
            "name": name,
            "worker": worker,
        }
        refresh = update(DeviceRow).where(DeviceRow.key == key).values(**fitting(DeviceRow, current))
        if self.connection.execute(refresh).rowcount == 0 and not insert_unless_present(
            self.connection, DeviceRow, {**current, "key": key, "first_seen": now}
        ):
            self.connection.execute(refresh)
        raise_counters(self.connection, [DEVICES])

    def remember(self, *, key: str, kind: str, name: str, fingerprint: str) -> None:
        """Know a device that no worker has announced (imported records), so that lookups find its key."""
        known = self.connection.execute(select(DeviceRow.key).where(DeviceRow.key == key)).first()
        if known is None:
            now = datetime.now(UTC)
            insert_unless_present(
                self.connection,
                DeviceRow,
                {
                    "key": key,
                    "kind": kind,
                    "name": name,
                    "fingerprint": fingerprint,
                    "worker": "",
                    "first_seen": now,
                    "last_seen": now,
                },
            )
            raise_counters(self.connection, [DEVICES])

    def find(self, key: str) -> StoredDevice | None:
        """The device with this key, None if no record or worker ever named it."""
        row = self.connection.execute(select(_TABLE).where(DeviceRow.key == key)).first()
        return None if row is None else StoredDevice(**row._mapping)

    def all(self) -> list[StoredDevice]:
        """All devices, those without a worker included."""
        query = select(_TABLE).order_by(DeviceRow.name, DeviceRow.key)
        return [StoredDevice(**row._mapping) for row in self.connection.execute(query)]
