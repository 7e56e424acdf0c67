"""What a running job tells: dataclasses with a JSON form, in the order in which things happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from .errors import SchemaError
from .json_fields import Fields, JsonObject, Scalar, expect_scalar, expect_text
from .records import ConfigRecord
from .trial import Trial, utc_now
from .workloads.spec import read_shape


@dataclass(frozen=True)
class JobStarted:
    """First event. ``device``: the fingerprint's key; ``tasks``: how many pairs of shape and dtype."""

    kernel_name: str
    device: str
    strategy: str
    tasks: int
    trials: int | None
    seconds: float | None
    at: str = field(default_factory=utc_now)

    def to_json(self) -> JsonObject:
        return {"kind": "job_started", **self.__dict__}


@dataclass(frozen=True)
class ShapeStarted:
    """``space_size``: number of valid configurations, None where there are too many to count. ``flops`` and ``bytes``
    of one launch, so that times can be shown as rates. ``held``: parameters of the workload's space that change no code on
    this device, and the one value of each that is tried."""

    shape: Mapping[str, int]
    dtype: str
    space_size: int | None
    flops: float = 0.0
    bytes: float = 0.0
    held: Mapping[str, Scalar] = field(default_factory=dict)
    at: str = field(default_factory=utc_now)

    def to_json(self) -> JsonObject:
        return {"kind": "shape_started", **self.__dict__, "shape": dict(self.shape), "held": dict(self.held)}


@dataclass(frozen=True)
class TrialFinished:
    """``incumbent``: id of the fastest trial so far, None before the first success."""

    shape: Mapping[str, int]
    dtype: str
    trial: Trial
    incumbent: str | None
    at: str = field(default_factory=utc_now)

    def to_json(self) -> JsonObject:
        return {
            "kind": "trial_finished",
            "shape": dict(self.shape),
            "dtype": self.dtype,
            "trial": self.trial.to_json(),
            "incumbent": self.incumbent,
            "at": self.at,
        }


@dataclass(frozen=True)
class ShapeFinished:
    record: ConfigRecord
    at: str = field(default_factory=utc_now)

    def to_json(self) -> JsonObject:
        return {"kind": "shape_finished", "record": self.record.to_json(), "at": self.at}


@dataclass(frozen=True)
class JobFinished:
    """Last event of a job that went through. ``records``: ids. ``profile``: file name of the profile in the working
    folder, ``profile_sha256`` its digest."""

    records: tuple[str, ...]
    duration_s: float
    profile: str | None = None
    profile_sha256: str | None = None
    at: str = field(default_factory=utc_now)

    def to_json(self) -> JsonObject:
        return {"kind": "job_finished", **self.__dict__, "records": list(self.records)}


@dataclass(frozen=True)
class JobFailed:
    """Last event of a job that could not go on."""

    error: str
    hint: str | None = None
    at: str = field(default_factory=utc_now)

    def to_json(self) -> JsonObject:
        return {"kind": "job_failed", **self.__dict__}


@dataclass(frozen=True)
class JobCancelled:
    """Last event of a job that was asked to stop; its finished trials stay valid."""

    at: str = field(default_factory=utc_now)

    def to_json(self) -> JsonObject:
        return {"kind": "job_cancelled", "at": self.at}


TuneEvent: TypeAlias = (
    JobStarted | ShapeStarted | TrialFinished | ShapeFinished | JobFinished | JobFailed | JobCancelled
)


def event_from_json(value: object, where: str = "event") -> TuneEvent:
    """Read any event by its ``kind``; raises :class:`SchemaError`."""
    fields = Fields(value, where)
    kind, at = fields.text("kind"), fields.text("at")
    match kind:
        case "job_started":
            return JobStarted(
                fields.text("kernel_name"),
                fields.text("device"),
                fields.text("strategy"),
                fields.integer("tasks"),
                fields.optional_integer("trials"),
                fields.optional_number("seconds"),
                at,
            )
        case "shape_started":
            return ShapeStarted(
                read_shape(fields.get("shape"), fields.where("shape")),
                fields.text("dtype"),
                fields.optional_integer("space_size"),
                fields.number("flops"),
                fields.number("bytes"),
                fields.mapping("held", expect_scalar) if fields.has("held") else {},
                at,
            )
        case "trial_finished":
            return TrialFinished(
                read_shape(fields.get("shape"), fields.where("shape")),
                fields.text("dtype"),
                Trial.from_json(fields.get("trial"), fields.where("trial")),
                fields.optional_text("incumbent"),
                at,
            )
        case "shape_finished":
            return ShapeFinished(ConfigRecord.from_json(fields.get("record"), fields.where("record")), at)
        case "job_finished":
            return JobFinished(
                fields.items("records", expect_text),
                fields.number("duration_s"),
                fields.optional_text("profile"),
                fields.optional_text("profile_sha256"),
                at,
            )
        case "job_failed":
            return JobFailed(fields.text("error"), fields.optional_text("hint"), at)
        case "job_cancelled":
            return JobCancelled(at)
        case _:
            raise SchemaError(f"{where}: unknown kind {kind!r}")
