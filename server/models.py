"""The tables. Rows stay inside :mod:`deuteron.server.store`; everyone else sees frozen dataclasses.

Documents whose shape another room owns (a job spec, a trial, a config record) are stored as the JSON text
that room wrote, beside the columns that queries need: a new field there needs no migration here.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC instant. SQLite drops the zone on the way in; this puts it back on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC, on the way into the database."""
        if value is None:
            return None
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Aware and in UTC, on the way out."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# SQLite numbers rows automatically only in a column declared exactly INTEGER.
BigId = BigInteger().with_variant(Integer, "sqlite")


def key_text(length: int) -> String:
    """Text that is compared byte by byte: a bundle's order must not depend on PostgreSQL's locale."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


#: Characters of a shape as text, such as M=512,N=512.
MOST_SHAPE_KEY = 400
#: Characters of a kernel's or a device's name or key, and of a dtype.
MOST_NAME, MOST_DTYPE = 200, 16


class Base(DeclarativeBase):
    # Names on every constraint, so that a later migration can drop them on both databases.
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class KernelRow(Base):
    """A kernel's source text, under the sha256 that the compiler computed of it. ``stored_number``: of the texts of a
    name, the one with the highest was stored last; a text that is stored again gets a new one. Times would not tell:
    clocks are set back. 0: by an older service, which was still running."""

    __tablename__ = "kernels"

    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), index=True)
    filename: Mapped[str] = mapped_column(String(400))
    text: Mapped[str] = mapped_column(Text)
    arguments: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    stored_number: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")


class JobRow(Base):
    """One search. ``number`` orders pages; ``claim_id`` names the run that may finish the job; ``device_key`` is that
    of the device it runs on, once it does."""

    __tablename__ = "jobs"

    number: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(36), unique=True)
    state: Mapped[str] = mapped_column(String(16), index=True)
    kernel_name: Mapped[str] = mapped_column(String(200), index=True)
    kernel_hash: Mapped[str] = mapped_column(String(64), index=True)
    device: Mapped[str] = mapped_column(String(100))
    device_key: Mapped[str | None] = mapped_column(String(200))
    spec: Mapped[str] = mapped_column(Text)
    trials_total: Mapped[int] = mapped_column(Integer)
    trials_done: Mapped[int] = mapped_column(Integer, default=0)
    # Of those, the ones that the budget counts; races and finals come on top.
    screened: Mapped[int] = mapped_column(Integer, default=0)
    last_event: Mapped[int] = mapped_column(Integer, default=0)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    claim_id: Mapped[str | None] = mapped_column(String(80))
    worker: Mapped[str | None] = mapped_column(String(200))
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    error: Mapped[str | None] = mapped_column(Text)
    profile_sha256: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class TrialRow(Base):
    """One finished trial, as the tuner wrote it. The key makes a repeated delivery harmless. ``best``: it was screened
    and faster than every screened trial of its job, shape and dtype that had arrived before it."""

    __tablename__ = "trials"
    __table_args__ = (
        Index("ix_trials_job_id_sequence", "job_id", "sequence"),
        Index("ix_trials_job_id_phase_sequence", "job_id", "phase", "sequence"),
        Index("ix_trials_job_id_status_sequence", "job_id", "status", "sequence"),
        # Of a search of n trials in random order about ln n are: the index stays small.
        Index(
            "ix_trials_best",
            "job_id",
            "dtype",
            "shape",
            "sequence",
            sqlite_where=text("best = 1"),
            postgresql_where=text("best"),
        ),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    trial_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    phase: Mapped[str] = mapped_column(String(16))
    sequence: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(Integer)
    dtype: Mapped[str] = mapped_column(String(16))
    shape: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String(20))
    median_ns: Mapped[float | None] = mapped_column(Float)
    bound: Mapped[str | None] = mapped_column(String(20))
    best: Mapped[bool] = mapped_column(default=False, server_default=false())
    body: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(UtcDateTime)


class EventRow(Base):
    """One event of a job. ``id`` counts 1, 2, 3 ... within the job: it is the SSE id."""

    __tablename__ = "events"
    __table_args__ = (
        UniqueConstraint("job_id", "claim_id", "sequence", name="uq_events_delivery"),
        Index("ix_events_job_id_kind_id", "job_id", "kind", "id"),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(40))
    body: Mapped[str] = mapped_column(Text)
    # Who delivered it and as which line of its spool. Of events that the server itself made the line is NULL, and who
    # is, too, unless the event gave the job to a run.
    claim_id: Mapped[str | None] = mapped_column(String(80))
    sequence: Mapped[int | None] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ConfigRow(Base):
    """The best configuration for one key. The five key columns are indexed in the order lookups narrow."""

    __tablename__ = "configs"
    __table_args__ = (
        UniqueConstraint(
            "kernel_hash",
            "device_key",
            "dtype",
            "shape_key",
            "toolchain_key",
            name="uq_configs_key",
        ),
        Index("ix_configs_device_key", "device_key"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    kernel_hash: Mapped[str] = mapped_column(key_text(64))
    kernel_name: Mapped[str] = mapped_column(String(200), index=True)
    device_key: Mapped[str] = mapped_column(key_text(200))
    device_name: Mapped[str] = mapped_column(String(200))
    dtype: Mapped[str] = mapped_column(key_text(16))
    shape_key: Mapped[str] = mapped_column(key_text(MOST_SHAPE_KEY))
    toolchain_key: Mapped[str] = mapped_column(key_text(1000))
    job_id: Mapped[str | None] = mapped_column(String(36))
    checked: Mapped[bool] = mapped_column()
    low_ns: Mapped[float] = mapped_column(Float)
    high_ns: Mapped[float] = mapped_column(Float)
    body: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    # Stays the answer whatever arrives.
    pinned: Mapped[bool] = mapped_column(default=False, server_default=false())


class ConfigHistoryRow(Base):
    """What happened to a record: it became the answer for its key, or did not; it was withdrawn or pinned."""

    __tablename__ = "config_history"
    __table_args__ = (
        Index("ix_config_history_key", "kernel_hash", "device_key", "dtype", "shape_key", "toolchain_key"),
    )

    number: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    config_id: Mapped[str] = mapped_column(String(36), index=True)
    kernel_hash: Mapped[str] = mapped_column(key_text(64))
    device_key: Mapped[str] = mapped_column(key_text(200))
    dtype: Mapped[str] = mapped_column(key_text(16))
    shape_key: Mapped[str] = mapped_column(key_text(MOST_SHAPE_KEY))
    toolchain_key: Mapped[str] = mapped_column(key_text(1000))
    action: Mapped[str] = mapped_column(String(16))
    who: Mapped[str] = mapped_column(String(200))
    reason: Mapped[str] = mapped_column(Text)
    job_id: Mapped[str | None] = mapped_column(String(36), index=True)
    low_ns: Mapped[float] = mapped_column(Float)
    high_ns: Mapped[float] = mapped_column(Float)
    body: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class CounterRow(Base):
    """Version counters: a cache that remembers a value knows whether it is stale with one read."""

    __tablename__ = "counters"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    value: Mapped[int] = mapped_column(BigInteger)


class DeviceRow(Base):
    """A device that a worker announced."""

    __tablename__ = "devices"

    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(200))
    fingerprint: Mapped[str] = mapped_column(Text)
    worker: Mapped[str] = mapped_column(String(200))
    first_seen: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen: Mapped[datetime] = mapped_column(UtcDateTime)


class WorkerRow(Base):
    """A device of a host that measures. ``name`` is ``device@host``, which no restart changes; ``process`` is how the
    process that measures there calls itself. Drained: it is given no job until it is resumed."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    process: Mapped[str] = mapped_column(String(200))
    device_key: Mapped[str | None] = mapped_column(String(200))
    toolchain: Mapped[str | None] = mapped_column(Text)
    # What the server that dispatches saw when it looked last, at ``last_seen``.
    connected: Mapped[bool] = mapped_column()
    first_seen: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen: Mapped[datetime] = mapped_column(UtcDateTime)
    drained_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    drained_by: Mapped[str | None] = mapped_column(String(200))


class TokenRow(Base):
    """A bearer token, hashed. The text of the token is shown once, when it is made."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class IdempotencyRow(Base):
    """Which job an Idempotency-Key made, and from which body."""

    __tablename__ = "idempotency_keys"

    owner: Mapped[str] = mapped_column(String(36), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_sha256: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
