"""Best configurations. One row per key; the row changes only when the newcomer is not slower."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Row, Select, func, insert, or_, select, update

from ..models import ConfigRow, CounterRow
from .records import StoredConfig
from .writes import insert_unless_present

_TABLE = ConfigRow.__table__
_ALL = "configs"


@dataclass(frozen=True, slots=True)
class Configs:
    """Configurations within one transaction."""

    connection: Connection

    def put(self, config: StoredConfig) -> StoredConfig:
        """Store a record under its key and return the one that is stored now.

        A stored record stays when the newcomer is an unchecked one against a checked one, or when its
        whole time interval lies above the stored interval: a hasty search must not worsen an answer.
        """
        stored = self._under_key(config)
        if stored is None:
            if not insert_unless_present(self.connection, ConfigRow, asdict(config)):
                return self.put(config)
        elif (stored.checked and not config.checked) or config.low_ns > stored.high_ns:
            return stored
        else:
            self.connection.execute(update(ConfigRow).where(ConfigRow.id == stored.id).values(**asdict(config)))
        self._raise_versions({_group(config)})
        return config

    def add_many(self, configs: list[StoredConfig]) -> None:
        """Bulk load of records whose keys are known to be new (imports, benchmarks)."""
        if configs:
            self.connection.execute(insert(ConfigRow), [asdict(config) for config in configs])
            self._raise_versions({_group(config) for config in configs})

    def version(self) -> int:
        """Grows with every change of any record."""
        return self._counter(_ALL)

    def group_version(self, kernel_hash: str, device_key: str, dtype: str) -> int:
        """Grows with every change of a record that :meth:`candidates` would return."""
        return self._counter(_counter_name(kernel_hash, device_key, dtype))

    def candidates(
        self, kernel_hash: str, device_key: str, dtype: str, *, shape_key: str | None = None
    ) -> list[StoredConfig]:
        """Everything a lookup for this kernel, device and dtype may answer with; of one shape, if given."""
        query = select(_TABLE).where(
            ConfigRow.kernel_hash == kernel_hash,
            ConfigRow.device_key == device_key,
            ConfigRow.dtype == dtype,
        )
        if shape_key is not None:
            query = query.where(ConfigRow.shape_key == shape_key)
        return [_config(row) for row in self.connection.execute(query)]

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
        rows = self.connection.execution_options(yield_per=500).execute(query)
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

    def newest(self, *, limit: int) -> list[StoredConfig]:
        """The last stored records, newest first."""
        query = select(_TABLE).order_by(ConfigRow.created_at.desc(), ConfigRow.id).limit(limit)
        return [_config(row) for row in self.connection.execute(query)]

    def of_job(self, job_id: str) -> list[StoredConfig]:
        """Records that a job left and that no later job has replaced."""
        query = select(_TABLE).where(ConfigRow.job_id == job_id).order_by(ConfigRow.shape_key)
        return [_config(row) for row in self.connection.execute(query)]

    def of_kernel(self, kernel: str, *, limit: int) -> list[StoredConfig]:
        """Records of the kernel of this name or hash, newest first."""
        query = (
            select(_TABLE)
            .where(or_(ConfigRow.kernel_name == kernel, ConfigRow.kernel_hash == kernel))
            .order_by(ConfigRow.created_at.desc(), ConfigRow.id)
            .limit(limit)
        )
        return [_config(row) for row in self.connection.execute(query)]

    def count(self) -> int:
        """How many records are stored."""
        return int(self.connection.execute(select(func.count()).select_from(ConfigRow)).scalar_one())

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
        # Sorted, so that two writers lock the rows in the same order.
        for name in sorted({_ALL, *groups}):
            self._raise_version(name)

    def _raise_version(self, name: str) -> None:
        raised = self.connection.execute(
            update(CounterRow).where(CounterRow.name == name).values(value=CounterRow.value + 1)
        )
        if raised.rowcount == 0 and not insert_unless_present(self.connection, CounterRow, {"name": name, "value": 1}):
            self._raise_version(name)


def _group(config: StoredConfig) -> str:
    return _counter_name(config.kernel_hash, config.device_key, config.dtype)


def _counter_name(kernel_hash: str, device_key: str, dtype: str) -> str:
    digest = hashlib.sha256("\0".join((kernel_hash, device_key, dtype)).encode()).hexdigest()
    return f"{_ALL}/{digest[:32]}"


def _config(row: Row[tuple[object, ...]]) -> StoredConfig:
    return StoredConfig(**row._mapping)
