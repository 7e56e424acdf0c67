"""One evaluated configuration."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import ClassVar, Literal, TypeAlias

from msgspec import field

from .codec import Document, Finite, Scalar
from .measure.measurement import Measurement
from .measure.statistics import Interval

Status: TypeAlias = Literal["ok", "invalid", "compile_error", "wrong_result", "crashed", "timeout", "failed"]
Phase: TypeAlias = Literal["screen", "race", "final"]


def utc_now() -> str:
    """The time now as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Trial(Document, frozen=True):
    """What one evaluation of a configuration gave.

    A configuration has one trial of phase ``screen``, and further ones if it reached the ``race`` or the ``final``.
    ``time_ns`` is None unless ``status`` is ok. ``reference`` says what the result was compared with, ``reason`` why
    the strategy proposed the configuration, if it says so. ``measurement``: the time with how it was taken, what is
    known of the code and what bounds it; None where there is no time, or an older version wrote the trial. ``metrics``
    are numbers: of the compiler (registers, shared_bytes, total_ms ...), flop_s and byte_s, compile_s, check_s and
    measure_s, worst_error (in units of the tolerance), sm_mhz; ``duplicate_of`` is the number of an earlier trial with
    the same machine code, whose time was taken; race and final trials carry ratio, ratio_low, ratio_high: their time
    over the default configuration's, measured in pairs.
    ``setup`` tells device and toolchain apart, so that a search that goes on elsewhere does not take the trial for its
    own; None where an older version wrote the trial.
    """

    noun: ClassVar[str] = "trial"

    number: int
    config: Mapping[str, Scalar]
    status: Status
    phase: Phase
    time_ns: Interval | None = None
    error: str | None = None
    reference: str | None = None
    reason: str | None = None
    measurement: Measurement | None = None
    metrics: Mapping[str, Finite] = field(default_factory=dict)
    duration_s: float = 0.0
    started_at: str = field(default_factory=utc_now)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    setup: str | None = None
