"""Answers of the service as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from deuteron.tuner import ConfigRecord
from deuteron.tuner.codec import Count, Document, Finite, JsonObject, Scalar, expect_object
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.http import NO_SERVICE, StrangeAnswer
from deuteron.tuner.records import Difference

FINAL_STATES = frozenset({"succeeded", "failed", "cancelled"})


@contextmanager
def understood(url: str) -> Iterator[None]:
    """What is no answer of a service at ``url``, such as a proxy's page, is said to be none.

    Raises:
        StrangeAnswer: reading it raised :class:`SchemaError`.
    """
    try:
        yield
    except SchemaError as error:
        raise StrangeAnswer(f"{url} does not answer as a service does: {error.message}", hint=NO_SERVICE) from None


def part(document: object, name: str) -> object:
    """A field of an answer. Raises :class:`SchemaError` where there is none."""
    fields = expect_object(document, "answer")
    if name not in fields:
        raise SchemaError(f"answer: the field {name!r} is missing")
    return fields[name]


def parts(document: object, name: str) -> list[object]:
    """A list in an answer. Raises :class:`SchemaError` where there is none."""
    found = part(document, name)
    if not isinstance(found, list):
        raise SchemaError(f"answer.{name}: expected an array")
    return found


class RemoteJob(Document, frozen=True):
    """A job as the service describes it. ``trials_total`` is the most that will be ``screened``."""

    noun: ClassVar[str] = "job"

    id: str
    state: str
    kernel_name: str
    kernel_hash: str
    device: str
    attempts: Count
    created_at: str
    worker: str | None = None
    error: str | None = None
    waiting_for: str | None = None
    trials: Count = 0
    screened: Count = 0
    trials_total: Count = 0

    @property
    def is_final(self) -> bool:
        """Whether the job has ended, one way or another."""
        return self.state in FINAL_STATES

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """The counts of the progress are the job's."""
        fields = expect_object(value, where)
        return {**fields, **expect_object(fields.get("progress", {}), f"{where}.progress")}


class RemoteWorker(Document, frozen=True):
    """A worker as the service describes it. ``name`` is ``device@host``; ``state`` is ``idle``, ``running``,
    ``draining`` or ``away``; ``job`` is the id of the one that it has."""

    noun: ClassVar[str] = "worker"

    name: str
    host: str
    device: str
    devices: tuple[str, ...]
    state: str
    draining: bool
    job: str | None
    last_seen: str
    toolchain: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class RemoteEvent:
    """One event of a job. ``kind`` is ``job_state`` or the kind of a TuneEvent, whose JSON is ``data``."""

    id: int
    kind: str
    data: JsonObject

    @property
    def ends_job(self) -> bool:
        """Whether this is the change to a final state."""
        return self.kind == "job_state" and self.data.get("state") in FINAL_STATES


class LookupResult(Document, frozen=True):
    """``match`` and ``reason`` say why this configuration; ``record`` is its evidence, None for a prediction or a
    default. ``toolchain_differences`` and ``expected_loss`` as in :class:`deuteron.tuner.Answer`."""

    noun: ClassVar[str] = "answer"

    match: str
    reason: str
    config: Mapping[str, Scalar]
    record: ConfigRecord | None = None
    toolchain_differences: tuple[Difference, ...] | None = None
    expected_loss: Finite | None = None


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
