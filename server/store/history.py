"""What became of every record that was ever stored: appended to, never changed.

A record under a key is *stored* when it becomes the answer, *kept* when it arrived and another stayed the answer.
*withdrawn* takes an answer away, *pinned* keeps it whatever arrives, until it is *unpinned*.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, Row, func, insert, select
from sqlalchemy.sql.elements import ColumnElement

from ..models import ConfigHistoryRow
from .records import ConfigAction, ConfigEntry, StoredConfig

_TABLE = ConfigHistoryRow.__table__
_ARRIVALS = (ConfigAction.STORED.value, ConfigAction.KEPT.value)


@dataclass(frozen=True, slots=True)
class ConfigHistory:
    """The history of configurations within one transaction."""

    connection: Connection

    def append(self, config: StoredConfig, action: ConfigAction, *, who: str, reason: str = "") -> None:
        """Note what happened to a record."""
        self.append_all([config], action, who=who, reason=reason)

    def append_all(self, configs: Sequence[StoredConfig], action: ConfigAction, *, who: str, reason: str = "") -> None:
        """Note what happened to records."""
        now = datetime.now(UTC)
        rows = [
            {
                "config_id": config.id,
                "kernel_hash": config.kernel_hash,
                "device_key": config.device_key,
                "dtype": config.dtype,
                "shape_key": config.shape_key,
                "toolchain_key": config.toolchain_key,
                "action": action.value,
                "who": who,
                "reason": reason,
                "job_id": config.job_id,
                "low_ns": config.low_ns,
                "high_ns": config.high_ns,
                "body": config.body,
                "at": now,
            }
            for config in configs
        ]
        self.connection.execute(insert(ConfigHistoryRow), rows)

    def of_key(self, config: StoredConfig | ConfigEntry) -> list[ConfigEntry]:
        """Everything that happened under a record's key, oldest first."""
        query = select(_TABLE).where(*_same_key(config)).order_by(ConfigHistoryRow.number)
        return [_entry(row) for row in self.connection.execute(query)]

    def of_id(self, config_id: str) -> list[ConfigEntry]:
        """Everything that happened to a record, oldest first."""
        query = select(_TABLE).where(ConfigHistoryRow.config_id == config_id).order_by(ConfigHistoryRow.number)
        return [_entry(row) for row in self.connection.execute(query)]

    def of_job(self, job_id: str) -> list[ConfigEntry]:
        """The records that a job found, whatever became of them later, by shape. A job that is resumed brings some
        again, and a withdrawal stores one again."""
        last = (
            select(func.max(ConfigHistoryRow.number))
            .where(ConfigHistoryRow.job_id == job_id, ConfigHistoryRow.action.in_(_ARRIVALS))
            .group_by(ConfigHistoryRow.config_id)
        )
        query = (
            select(_TABLE)
            .where(ConfigHistoryRow.number.in_(last))
            .order_by(ConfigHistoryRow.dtype, ConfigHistoryRow.shape_key, ConfigHistoryRow.number)
        )
        return [_entry(row) for row in self.connection.execute(query)]

    def toolchain_of(self, job_id: str) -> str | None:
        """The key of what a job measured with, None of one that found no record. A job runs on one worker."""
        query = (
            select(ConfigHistoryRow.toolchain_key)
            .where(ConfigHistoryRow.job_id == job_id, ConfigHistoryRow.action.in_(_ARRIVALS))
            .order_by(ConfigHistoryRow.number.desc())
            .limit(1)
        )
        return self.connection.execute(query).scalar()

    def toolchains_of(self, job_ids: Collection[str]) -> dict[str, str]:
        """The same of many jobs, without those that found no record."""
        newest = (
            select(func.max(ConfigHistoryRow.number))
            .where(ConfigHistoryRow.job_id.in_(job_ids), ConfigHistoryRow.action.in_(_ARRIVALS))
            .group_by(ConfigHistoryRow.job_id)
        )
        query = select(ConfigHistoryRow.job_id, ConfigHistoryRow.toolchain_key).where(
            ConfigHistoryRow.number.in_(newest)
        )
        return {str(row.job_id): row.toolchain_key for row in self.connection.execute(query)}

    def knows_kernel(self, kernel_hash: str) -> bool:
        """Whether a record of the kernel was ever stored."""
        query = select(ConfigHistoryRow.number).where(ConfigHistoryRow.kernel_hash == kernel_hash).limit(1)
        return self.connection.execute(query).first() is not None

    def latest(self, config_id: str) -> ConfigEntry | None:
        """The last entry of a record, None if there never was one of this id."""
        query = (
            select(_TABLE)
            .where(ConfigHistoryRow.config_id == config_id)
            .order_by(ConfigHistoryRow.number.desc())
            .limit(1)
        )
        row = self.connection.execute(query).first()
        return None if row is None else _entry(row)

    def count(self) -> int:
        """How many entries there are."""
        return int(self.connection.execute(select(func.count()).select_from(ConfigHistoryRow)).scalar_one())


def _same_key(config: StoredConfig | ConfigEntry) -> list[ColumnElement[bool]]:
    return [
        ConfigHistoryRow.kernel_hash == config.kernel_hash,
        ConfigHistoryRow.device_key == config.device_key,
        ConfigHistoryRow.dtype == config.dtype,
        ConfigHistoryRow.shape_key == config.shape_key,
        ConfigHistoryRow.toolchain_key == config.toolchain_key,
    ]


def _entry(row: Row[tuple[object, ...]]) -> ConfigEntry:
    values = dict(row._mapping)
    return ConfigEntry(**{**values, "action": ConfigAction(values["action"])})
