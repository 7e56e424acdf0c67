"""One evaluated configuration."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from .json_fields import Fields, JsonObject, Scalar, expect_number
from .measure.statistics import Interval
from .space import read_config

STATUSES = ("ok", "invalid", "compile_error", "wrong_result", "crashed", "timeout", "failed")
PHASES = ("screen", "race", "final")


def utc_now() -> str:
    """The time now as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Trial:
    """What one evaluation of a configuration gave.

    A configuration has one trial of phase ``screen``, and further ones if it reached the ``race`` or the ``final``.
    ``time_ns`` is None unless ``status`` is ok. ``reference`` says what the result was compared with. ``metrics`` are
    numbers: of the compiler (registers, shared_bytes, total_ms ...), flop_s and byte_s, compile_s, check_s and
    measure_s, worst_error (in units of the tolerance), sm_mhz; ``duplicate_of`` is the number of an earlier trial with
    the same machine code, whose time was taken; race and final trials carry ratio, ratio_low, ratio_high: their time
    over the default configuration's, measured in pairs.
    """

    number: int
    config: Mapping[str, Scalar]
    status: str
    phase: str
    time_ns: Interval | None = None
    error: str | None = None
    reference: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    duration_s: float = 0.0
    started_at: str = field(default_factory=utc_now)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "number": self.number,
            "config": dict(self.config),
            "status": self.status,
            "phase": self.phase,
            "time_ns": None if self.time_ns is None else self.time_ns.to_json(),
            "error": self.error,
            "reference": self.reference,
            "metrics": dict(self.metrics),
            "started_at": self.started_at,
            "duration_s": self.duration_s,
        }

    @staticmethod
    def from_json(value: object, where: str = "trial") -> Trial:
        fields = Fields(value, where)
        return Trial(
            id=fields.text("id"),
            number=fields.integer("number"),
            config=read_config(fields.get("config"), fields.where("config")),
            status=fields.one_of("status", STATUSES),
            phase=fields.one_of("phase", PHASES),
            time_ns=Interval.from_json(fields.get("time_ns"), fields.where("time_ns"))
            if fields.has("time_ns")
            else None,
            error=fields.optional_text("error"),
            reference=fields.optional_text("reference"),
            metrics=fields.mapping("metrics", expect_number),
            started_at=fields.text("started_at"),
            duration_s=fields.number("duration_s"),
        )
