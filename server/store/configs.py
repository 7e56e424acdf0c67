"""Best configurations. One row per key; the row changes only when the newcomer is not slower. Every change is in the
history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TypedDict

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, or_, select, update

from ..models import ConfigRow, CounterRow
from .errors import Conflict, NotFound
from .history import ConfigHistory
from .records import ConfigAction, ConfigEntry, CoveredShape, StoredConfig
from .writes import fitting, insert_unless_present, raise_counters

_TABLE = ConfigRow.__table__
#: The version counter of all records.
CONFIGS = "configs"


@dataclass(frozen=True, slots=True)
class Configs:
    """Configurations within one transaction."""

    connection: Connection

    def put(self, config: StoredConfig, *, who: str = "") -> StoredConfig | None:
        """Store a record under its key and return the one that is stored now. The history has it either way.

        A stored record stays when it is pinned, when the newcomer is an unchecked one against a checked one, or when
        its whole time interval lies above the stored interval: a hasty search must not worsen an answer. One that was
        withdrawn does not come back when a job that is resumed brings it again.

        Raises:
            Conflict: a record of this id has another key.
            TooLong: a text is longer than its column.
        """
        values = fitting(ConfigRow, asdict(config))
        known, stored = self._history.of_id(config.id), self._under_key(config)
        if any(entry.key != config.key for entry in known):
            raise Conflict(f"there is a configuration {config.id} under another key", hint="ids are of one key")
        withdrawn = any(entry.action is ConfigAction.WITHDRAWN for entry in known)
        why = f"{config.id} was withdrawn" if withdrawn else "" if stored is None else _stays(stored, config)
        if why:
            self._history.append(config, ConfigAction.KEPT, who=who, reason=why)
            return stored
        if stored is not None:
            self.connection.execute(update(ConfigRow).where(ConfigRow.id == stored.id).values(**values))
        elif not insert_unless_present(self.connection, ConfigRow, values):
            if self._under_key(config) is None:
                raise Conflict(f"there is a configuration {config.id} under another key", hint="ids are of one key")
            return self.put(config, who=who)  # another server was quicker: what it wrote is seen now
        self._history.append(config, ConfigAction.STORED, who=who)
        self._raise_versions({_group(config)})
        return config

    def withdraw(self, config_id: str, *, who: str, reason: str) -> StoredConfig | None:
        """Take a record away, and answer with the one that was the answer before it: what is stored now, None for
        nothing. A record that was withdrawn once does not come back.

        Raises:
            NotFound: no record of this id is stored.
        """
        config = self.get(config_id)
        self.connection.execute(delete(ConfigRow).where(ConfigRow.id == config_id))
        self._history.append(config, ConfigAction.WITHDRAWN, who=who, reason=reason)
        entries = self._history.of_key(config)
        gone = {entry.config_id for entry in entries if entry.action is ConfigAction.WITHDRAWN}
        earlier = [e for e in entries if e.action is ConfigAction.STORED and e.config_id not in gone]
        restored = None
        if earlier:
            restored = replace(
                config, id=earlier[-1].config_id, job_id=earlier[-1].job_id, pinned=False, **_of_body(earlier[-1])
            )
            self.connection.execute(insert(ConfigRow).values(**asdict(restored)))
            self._history.append(restored, ConfigAction.STORED, who=who, reason=f"{config_id} was withdrawn")
        self._raise_versions({_group(config)})
        return restored

    def pin(self, config_id: str, *, pinned: bool, who: str, reason: str) -> StoredConfig:
        """Let a record stay the answer whatever arrives, or no longer.

        Raises:
            NotFound: no record of this id is stored.
        """
        config = self.get(config_id)
        if config.pinned is not pinned:
            self.connection.execute(update(ConfigRow).where(ConfigRow.id == config_id).values(pinned=pinned))
            action = ConfigAction.PINNED if pinned else ConfigAction.UNPINNED
            self._history.append(config, action, who=who, reason=reason)
        return replace(config, pinned=pinned)

    def get(self, config_id: str) -> StoredConfig:
        """Raises:
        NotFound: no record of this id is stored.
        """
        row = self.connection.execute(select(_TABLE).where(ConfigRow.id == config_id).with_for_update()).first()
        if row is None:
            raise NotFound(
                f"no configuration {config_id} is stored",
                hint="it may have been replaced or withdrawn: GET /v1/configs/{id}/history",
            )
        return _config(row)

    def add_many(self, configs: list[StoredConfig]) -> None:
        """Bulk load of records whose keys are known to be new (imports, benchmarks)."""
        if configs:
            self.connection.execute(insert(ConfigRow), [asdict(config) for config in configs])
            self._history.append_all(configs, ConfigAction.STORED, who="")
            self._raise_versions({_group(config) for config in configs})

    def version(self) -> int:
        """Grows with every change of any record."""
        return self._counter(CONFIGS)

    def group_version(self, kernel_hash: str, device_key: str, dtype: str) -> int:
        """Grows with every change of a record that :meth:`candidates` would return."""
        return self._counter(_counter_name(kernel_hash, device_key, dtype))

    def candidates(
        self, kernel_hash: str, device_keys: Iterable[str], dtype: str, *, shape_keys: Collection[str] | None = None
    ) -> list[str]:
        """The texts of everything a lookup for this kernel, these devices and dtype may answer with, device by device;
        of these shapes only, if they are given."""
        found: list[str] = []
        for device_key in device_keys:
            query = select(ConfigRow.body).where(*_in_group(kernel_hash, [device_key], dtype))
            if shape_keys is not None:
                query = query.where(ConfigRow.shape_key.in_(shape_keys))
            found += self.connection.execute(query).scalars()
        return found

    def count_of(self, kernel_hash: str, device_keys: Collection[str], dtype: str) -> int:
        """How many records :meth:`candidates` would return."""
        query = select(func.count()).select_from(ConfigRow).where(*_in_group(kernel_hash, device_keys, dtype))
        return int(self.connection.execute(query).scalar_one())

    def keys_of(self, kernel_hash: str, device_keys: Collection[str], dtype: str) -> Iterator[tuple[str, str, str]]:
        """Device key, toolchain key and shape key of what :meth:`candidates` would return."""
        for device_key in device_keys:
            where = _in_group(kernel_hash, [device_key], dtype)
            for row in self.connection.execute(select(ConfigRow.toolchain_key, ConfigRow.shape_key).where(*where)):
                yield device_key, row.toolchain_key, row.shape_key

    def places(self, kernel_hash: str) -> list[tuple[str, str]]:
        """Device keys and dtypes for which records of a kernel are stored."""
        query = select(ConfigRow.device_key, ConfigRow.dtype).where(ConfigRow.kernel_hash == kernel_hash).distinct()
        return [(row.device_key, row.dtype) for row in self.connection.execute(query)]

    def shapes(self, kernel_hash: str, *, limit: int) -> list[tuple[str, str]]:
        """Kernel name and shape key of some records of a kernel."""
        query = (
            select(ConfigRow.kernel_name, ConfigRow.shape_key).where(ConfigRow.kernel_hash == kernel_hash).limit(limit)
        )
        return [(row.kernel_name, row.shape_key) for row in self.connection.execute(query)]

    def stream(self, *, kernel_hash: str | None = None, device_key: str | None = None) -> Iterator[str]:
        """Bodies of matching records in key order, fetched in batches."""
        query = select(ConfigRow.body).order_by(
            ConfigRow.kernel_hash,
            ConfigRow.device_key,
            ConfigRow.dtype,
            ConfigRow.shape_key,
            ConfigRow.toolchain_key,
        )
        if kernel_hash is not None:
            query = query.where(ConfigRow.kernel_hash == kernel_hash)
        if device_key is not None:
            query = query.where(ConfigRow.device_key == device_key)
        rows = self.connection.execute(query.execution_options(yield_per=500))
        for (body,) in rows:
            yield body

    def page(self, *, after: str = "", limit: int = 100, kernel_hash: str | None = None) -> list[StoredConfig]:
        """Records in order of id, with ids above ``after``."""
        query: Select[tuple[object, ...]] = (
            select(_TABLE).where(ConfigRow.id > after).order_by(ConfigRow.id).limit(limit)
        )
        if kernel_hash is not None:
            query = query.where(ConfigRow.kernel_hash == kernel_hash)
        return [_config(row) for row in self.connection.execute(query)]

    def search(
        self, *, kernel: str = "", device: str = "", dtype: str = "", by_name: bool = False, limit: int, offset: int = 0
    ) -> tuple[list[StoredConfig], int]:
        """A window of the records whose names have these parts (``dtype`` is a whole one), and how many there are:
        newest first, or by kernel, device, dtype and shape."""
        wanted = [
            column.icontains(part, autoescape=True)
            for column, part in ((ConfigRow.kernel_name, kernel), (ConfigRow.device_name, device))
            if part
        ]
        if dtype:
            wanted.append(ConfigRow.dtype == dtype)
        names = (ConfigRow.kernel_name, ConfigRow.device_name, ConfigRow.dtype, ConfigRow.shape_key)
        order = names if by_name else (ConfigRow.created_at.desc(),)
        query = select(_TABLE).where(*wanted).order_by(*order, ConfigRow.id).limit(limit).offset(offset)
        count = select(func.count()).select_from(ConfigRow).where(*wanted)
        found = [_config(row) for row in self.connection.execute(query)]
        return found, int(self.connection.execute(count).scalar_one())

    def dtypes(self) -> list[str]:
        """The dtypes of all records, in order."""
        return list(self.connection.execute(select(ConfigRow.dtype).distinct().order_by(ConfigRow.dtype)).scalars())

    def coverage(self, *, kernel: str = "", limit: int) -> list[CoveredShape]:
        """What each shape of a kernel has on each device, by name, oldest first. ``kernel`` is a
        part of the name."""
        wanted = [ConfigRow.kernel_name.icontains(kernel, autoescape=True)] if kernel else []
        columns = (
            ConfigRow.kernel_name,
            ConfigRow.dtype,
            ConfigRow.shape_key,
            ConfigRow.device_name,
            ConfigRow.id,
            ConfigRow.created_at,
            ConfigRow.body,
        )
        query = (
            select(*columns)
            .where(*wanted)
            .order_by(ConfigRow.kernel_name, ConfigRow.dtype, ConfigRow.shape_key, ConfigRow.created_at)
            .limit(limit)
        )
        return [CoveredShape(**row._mapping) for row in self.connection.execute(query)]

    def of_kernel(self, kernel: str, *, limit: int) -> list[StoredConfig]:
        """Records of the kernel of this name or hash, newest first."""
        query = (
            select(_TABLE)
            .where(or_(ConfigRow.kernel_name == kernel, ConfigRow.kernel_hash == kernel))
            .order_by(ConfigRow.created_at.desc(), ConfigRow.id)
            .limit(limit)
        )
        return [_config(row) for row in self.connection.execute(query)]

    def newest(self, *, kernel_hash: str | None = None, device_key: str | None = None) -> datetime | None:
        """When the newest of the records was made that :meth:`stream` gives; None where it gives none."""
        query = select(func.max(ConfigRow.created_at))
        if kernel_hash is not None:
            query = query.where(ConfigRow.kernel_hash == kernel_hash)
        if device_key is not None:
            query = query.where(ConfigRow.device_key == device_key)
        return self.connection.execute(query).scalar_one()

    def count(self) -> int:
        """How many records are stored."""
        return int(self.connection.execute(select(func.count()).select_from(ConfigRow)).scalar_one())

    @property
    def _history(self) -> ConfigHistory:
        return ConfigHistory(self.connection)

    def _under_key(self, config: StoredConfig) -> StoredConfig | None:
        query = select(_TABLE).where(
            ConfigRow.kernel_hash == config.kernel_hash,
            ConfigRow.device_key == config.device_key,
            ConfigRow.dtype == config.dtype,
            ConfigRow.shape_key == config.shape_key,
            ConfigRow.toolchain_key == config.toolchain_key,
        )
        row = self.connection.execute(query.with_for_update()).first()
        return None if row is None else _config(row)

    def _counter(self, name: str) -> int:
        query = select(CounterRow.value).where(CounterRow.name == name)
        return int(self.connection.execute(query).scalar() or 0)

    def _raise_versions(self, groups: set[str]) -> None:
        raise_counters(self.connection, {CONFIGS, *groups})


def _stays(stored: StoredConfig, config: StoredConfig) -> str:
    """Why a stored record stays the answer though another arrives; empty if it does not."""
    if stored.pinned:
        return f"{stored.id} is pinned"
    if stored.checked and not config.checked:
        return f"{stored.id} was checked against the reference and this one was not"
    if config.low_ns > stored.high_ns:
        return f"{stored.id} is faster"
    return ""


class _Body(TypedDict):
    checked: bool
    low_ns: float
    high_ns: float
    body: str
    created_at: datetime


def _of_body(entry: ConfigEntry) -> _Body:
    """The columns of a record that differ from the other records under its key."""
    record = json.loads(entry.body)
    return {
        "checked": bool(record.get("checked")),
        "low_ns": entry.low_ns,
        "high_ns": entry.high_ns,
        "body": entry.body,
        "created_at": _made_at(record, entry),
    }


def _made_at(record: dict[str, object], entry: ConfigEntry) -> datetime:
    """When a record was made, which may be long before it arrived; of one that does not say it, when it did."""
    try:
        return datetime.fromisoformat(str(record["created_at"])).astimezone(UTC)
    except (KeyError, ValueError, OverflowError):
        return entry.at


def _in_group(kernel_hash: str, device_keys: Collection[str], dtype: str) -> tuple[ColumnElement[bool], ...]:
    return ConfigRow.kernel_hash == kernel_hash, ConfigRow.device_key.in_(device_keys), ConfigRow.dtype == dtype


def _group(config: StoredConfig) -> str:
    return _counter_name(config.kernel_hash, config.device_key, config.dtype)


def _counter_name(kernel_hash: str, device_key: str, dtype: str) -> str:
    digest = hashlib.sha256("\0".join((kernel_hash, device_key, dtype)).encode()).hexdigest()
    return f"{CONFIGS}/{digest[:32]}"


def _config(row: Row[tuple[object, ...]]) -> StoredConfig:
    return StoredConfig(**row._mapping)
