"""What a running job tells, in the order in which things happen; ``kind`` says which in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

from msgspec import field

from .codec import Document, Finite, Scalar, convert, decode
from .experience.report import StartReport
from .records import ConfigRecord
from .trial import Trial, utc_now


class _Event(Document, frozen=True, tag_field="kind"):
    """Base of the events. ``at``: when it happened, ISO 8601 in UTC."""

    noun: ClassVar[str] = "event"


class JobStarted(_Event, frozen=True, tag="job_started"):
    """First event. ``device``: the fingerprint's key; ``tasks``: how many pairs of shape and dtype."""

    kernel_name: str
    device: str
    strategy: str
    tasks: int
    trials: int | None
    seconds: Finite | None
    at: str = field(default_factory=utc_now)


class ShapeStarted(_Event, frozen=True, tag="shape_started"):
    """``space_size``: number of valid configurations, None where there are too many to count. ``flops`` and ``bytes``
    of one launch, so that times can be shown as rates. ``held``: parameters of the workload's space that change no code
    on this device, and the one value of each that is tried. ``known``: earlier searches that this one starts from."""

    shape: Mapping[str, int]
    dtype: str
    space_size: int | None
    flops: Finite = 0.0
    bytes: Finite = 0.0
    held: Mapping[str, Scalar] = field(default_factory=dict)
    known: tuple[str, ...] = ()
    at: str = field(default_factory=utc_now)


class TrialFinished(_Event, frozen=True, tag="trial_finished"):
    """``incumbent``: id of the fastest trial so far, None before the first success."""

    shape: Mapping[str, int]
    dtype: str
    trial: Trial
    incumbent: str | None
    at: str = field(default_factory=utc_now)


class ShapeFinished(_Event, frozen=True, tag="shape_finished"):
    """The search of one shape and dtype has its result. ``start``: what earlier searches were worth to it, None where
    it started from none. ``settled``: why the strategy ended it early, None if it did not. ``doubt``: why the record
    may be wrong; None where another configuration has the same result."""

    record: ConfigRecord
    start: StartReport | None = None
    settled: str | None = None
    doubt: str | None = None
    at: str = field(default_factory=utc_now)


class JobFinished(_Event, frozen=True, tag="job_finished"):
    """Last event of a job that went through. ``records``: ids. ``profile``: file name of the profile in the working
    folder, ``profile_sha256`` its digest."""

    records: tuple[str, ...]
    duration_s: Finite
    profile: str | None = None
    profile_sha256: str | None = None
    at: str = field(default_factory=utc_now)


class JobFailed(_Event, frozen=True, tag="job_failed"):
    """Last event of a job that could not go on."""

    error: str
    hint: str | None = None
    at: str = field(default_factory=utc_now)


class JobCancelled(_Event, frozen=True, tag="job_cancelled"):
    """Last event of a job that was asked to stop; its finished trials stay valid."""

    at: str = field(default_factory=utc_now)


TuneEvent: TypeAlias = (
    JobStarted | ShapeStarted | TrialFinished | ShapeFinished | JobFinished | JobFailed | JobCancelled
)


def event_from_json(value: object) -> TuneEvent:
    """Any event out of parsed JSON, by its ``kind``; raises :class:`~.errors.SchemaError`."""
    return convert(value, _ANY, "event")


def decode_event(text: str | bytes, where: str = "event") -> TuneEvent:
    """Any event out of JSON text; raises :class:`~.errors.SchemaError`."""
    return decode(text, _ANY, where)


# A union is a type for msgspec, and none for type checkers.
_ANY: type[TuneEvent] = TuneEvent  # type: ignore[assignment]
