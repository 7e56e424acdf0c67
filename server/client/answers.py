"""Answers of the service as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from deuteron.tuner import ConfigRecord
from deuteron.tuner.records import Difference

FINAL_STATES = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """A job as the service describes it. ``trials_total`` is the most that will be ``screened``."""

    id: str
    state: str
    kernel_name: str
    kernel_hash: str
    device: str
    trials: int
    screened: int
    trials_total: int
    attempts: int
    worker: str | None
    error: str | None
    waiting_for: str | None
    created_at: str

    @property
    def is_final(self) -> bool:
        """Whether the job has ended, one way or another."""
        return self.state in FINAL_STATES

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> RemoteJob:
        """A job out of the service's JSON; raises KeyError for a document that is none."""
        progress = document["progress"]
        counts = progress if isinstance(progress, Mapping) else {}
        return cls(
            id=str(document["id"]),
            state=str(document["state"]),
            kernel_name=str(document["kernel_name"]),
            kernel_hash=str(document["kernel_hash"]),
            device=str(document["device"]),
            trials=int(counts.get("trials", 0)),
            screened=int(counts.get("screened", 0)),
            trials_total=int(counts.get("trials_total", 0)),
            attempts=int(str(document["attempts"])),
            worker=_optional(document.get("worker")),
            error=_optional(document.get("error")),
            waiting_for=_optional(document.get("waiting_for")),
            created_at=str(document["created_at"]),
        )


@dataclass(frozen=True, slots=True)
class RemoteWorker:
    """A worker as the service describes it. ``name`` is ``device@host``; ``state`` is ``idle``, ``running``,
    ``draining`` or ``away``; ``job`` is the id of the one that it has."""

    name: str
    host: str
    device: str
    devices: tuple[str, ...]
    state: str
    draining: bool
    job: str | None
    last_seen: str
    toolchain: Mapping[str, str] | None

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> RemoteWorker:
        """A worker out of the service's JSON; raises KeyError for a document that is none."""
        return cls(
            name=str(document["name"]),
            host=str(document["host"]),
            device=str(document["device"]),
            devices=tuple(cast("list[str]", document["devices"])),
            state=str(document["state"]),
            draining=bool(document["draining"]),
            job=_optional(document["job"]),
            last_seen=str(document["last_seen"]),
            toolchain=cast("Mapping[str, str] | None", document["toolchain"]),
        )


@dataclass(frozen=True, slots=True)
class RemoteEvent:
    """One event of a job. ``kind`` is ``job_state`` or the kind of a TuneEvent, whose JSON is ``data``."""

    id: int
    kind: str
    data: dict[str, object]

    @property
    def ends_job(self) -> bool:
        """Whether this is the change to a final state."""
        return self.kind == "job_state" and self.data.get("state") in FINAL_STATES


@dataclass(frozen=True, slots=True)
class LookupResult:
    """``match`` and ``reason`` say why this configuration; ``record`` is its evidence, None for a prediction or a
    default. ``toolchain_differences`` and ``expected_loss`` as in :class:`deuteron.tuner.Answer`."""

    match: str
    reason: str
    config: dict[str, int | float | str | bool]
    record: ConfigRecord | None
    toolchain_differences: tuple[Difference, ...] | None = None
    expected_loss: float | None = None


@dataclass(frozen=True, slots=True)
class BundleDownload:
    """``changed`` is False when the file was there already and is still the current one."""

    path: Path
    sha256: str
    changed: bool


@dataclass(frozen=True, slots=True)
class RemoteHealth:
    """``auth`` says in words who may call, ``scheduler`` is ``embedded``, ``none`` or how one elsewhere is reached,
    ``workers`` are those that are connected now."""

    auth: str
    scheduler: str
    workers: int


def _optional(value: object) -> str | None:
    return None if value is None else str(value)
