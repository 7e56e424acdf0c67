"""What the store returns: frozen values, never rows. ``body`` fields hold JSON that the tuner wrote."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class JobState(StrEnum):
    """``queued -> running -> succeeded | failed | cancelled``; running may go back to queued when its
    worker dies. The last three are final: nothing changes them."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether a job in this state will not change any more."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """``hash`` is the compiler's sha256 of the source; ``arguments`` is a JSON list."""

    hash: str
    name: str
    filename: str
    text: str
    arguments: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a submission fixes. ``spec`` is a JobSpec as JSON; ``trials_total`` the most it will screen,
    0 where it does not say."""

    id: str
    kernel_name: str
    kernel_hash: str
    device: str
    spec: str
    trials_total: int


@dataclass(frozen=True, slots=True)
class Job:
    """``device`` is what was asked for, ``device_key`` identifies the device that a run found; None before one did."""

    number: int
    id: str
    state: JobState
    kernel_name: str
    kernel_hash: str
    device: str
    device_key: str | None
    spec: str
    trials_total: int
    trials_done: int
    screened: int
    last_event: int
    attempts: int
    claim_id: str | None
    worker: str | None
    cancel_requested: bool
    error: str | None
    profile_sha256: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    lease_expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """``sequence`` orders trials as they arrived; ``shape`` and ``body`` are JSON text; ``bound``: what bounds the
    variant (:data:`deuteron.tuner.measure.measurement.Bound`), None where nobody knows; ``best``: it was faster than
    every screened trial of its search before it."""

    job_id: str
    trial_id: str
    phase: str
    sequence: int
    attempt: int
    dtype: str
    shape: str
    status: str
    median_ns: float | None
    bound: str | None
    best: bool
    body: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class NewTrial:
    trial_id: str
    phase: str
    attempt: int
    dtype: str
    shape: str
    status: str
    median_ns: float | None
    body: str
    bound: str | None = None


@dataclass(frozen=True, slots=True)
class FoundSearch:
    """What identifies a search that measured something; ``shape`` is JSON text, ``first`` the number of its first trial
    that worked among those of its job."""

    job_id: str
    kernel_name: str
    kernel_hash: str
    device_key: str
    shape: str
    dtype: str
    first: int


@dataclass(frozen=True, slots=True)
class ScreenedTime:
    """A screened trial that worked, without its configuration. ``shape`` is JSON text."""

    sequence: int
    shape: str
    dtype: str
    median_ns: float


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """``id`` is 1, 2, 3 ... within its job."""

    job_id: str
    id: int
    kind: str
    body: str
    created_at: datetime


class ConfigAction(StrEnum):
    """What happened to a record; :mod:`.history` says what each means."""

    STORED = "stored"
    KEPT = "kept"
    WITHDRAWN = "withdrawn"
    PINNED = "pinned"
    UNPINNED = "unpinned"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One entry of the history of configurations. ``who`` is a token's name, a worker or a program; empty where it is
    not known. ``body`` is the ConfigRecord as JSON."""

    number: int
    config_id: str
    kernel_hash: str
    device_key: str
    dtype: str
    shape_key: str
    toolchain_key: str
    action: ConfigAction
    who: str
    reason: str
    job_id: str | None
    low_ns: float
    high_ns: float
    body: str
    at: datetime

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What one record at a time is stored under."""
        return self.kernel_hash, self.device_key, self.dtype, self.shape_key, self.toolchain_key


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """A config record with its key columns; ``body`` is the ConfigRecord as JSON. One that is ``pinned`` stays whatever
    arrives."""

    id: str
    kernel_hash: str
    kernel_name: str
    device_key: str
    device_name: str
    dtype: str
    shape_key: str
    toolchain_key: str
    job_id: str | None
    checked: bool
    low_ns: float
    high_ns: float
    body: str
    created_at: datetime
    pinned: bool = False

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What one record at a time is stored under."""
        return self.kernel_hash, self.device_key, self.dtype, self.shape_key, self.toolchain_key


@dataclass(frozen=True, slots=True)
class CoveredShape:
    """That a record is stored for a shape on a device; ``body`` is the ConfigRecord as JSON."""

    kernel_name: str
    dtype: str
    shape_key: str
    device_name: str
    id: str
    created_at: datetime
    body: str


@dataclass(frozen=True, slots=True)
class StoredDevice:
    """A device that a worker announced; ``fingerprint`` is a DeviceFingerprint as JSON."""

    key: str
    kind: str
    name: str
    fingerprint: str
    worker: str
    first_seen: datetime
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class StoredWorker:
    """A device of a host that measures: ``name`` is ``device@host``, ``process`` what measures there now.
    ``connected``: the server that dispatches saw it at ``last_seen``. ``toolchain`` is JSON; it and ``device_key`` are
    None where the worker has not said them. ``drained_at``: since when it gets no other job, None for one that does."""

    name: str
    process: str
    device_key: str | None
    toolchain: str | None
    connected: bool
    first_seen: datetime
    last_seen: datetime
    drained_at: datetime | None
    drained_by: str | None

    @property
    def device(self) -> str:
        """Such as ``cuda:0``."""
        return self.name.partition("@")[0]

    @property
    def host(self) -> str:
        """The machine's name, "" for a worker that does not say it."""
        return self.name.partition("@")[2]

    @property
    def draining(self) -> bool:
        """Whether it is given no other job."""
        return self.drained_at is not None


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret."""

    id: str
    name: str
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
