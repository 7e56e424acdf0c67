"""The best configuration for a kernel, device, shape and dtype, with the evidence for it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import ClassVar

from msgspec import field
from msgspec.structs import force_setattr

from ..codec import MOST_INTEGER, Count, Document, Scalar, canonical_json
from ..job import shape_key
from ..measure.statistics import Interval, Verdict
from ..trial import utc_now
from .fingerprint import DeviceFingerprint
from .reach import Reach

_UNKNOWN = Reach()
_NAMESPACE = uuid.UUID("6f0d0d1e-6c0a-4c87-9b0e-7d2a6f6b6f53")


# Services keep a hundred thousand records: of these, and of what they are made of, Python's collector looks at none.
class ConfigRecord(Document, frozen=True, gc=False):
    """What a search found. It is never slower than the default: ``config`` differs from ``default_config`` only where
    the final measurement called it FASTER; else it is the default, and ``speedup`` is exactly 1.

    ``verdict`` compares the best challenger with the default: SAME, SLOWER and AMBIGUOUS say why the default was
    kept. Times are medians in ns of the final phase with 95 % intervals; ``speedup`` is the paired ratio default/best,
    ``challenger`` the same ratio of the best challenger, taken or not, with an interval that holds for all finalists
    together; None where the search had no challenger, and the verdict is AMBIGUOUS.
    ``toolchain``: names and versions that the code depended on. ``dims_from_arguments`` and ``dtype_argument`` tell a
    launcher where shape and dtype are found among the arguments (:class:`~..workloads.WorkloadSpec`).
    ``shape_key``, the canonical text of the shape, follows from it. ``checked``: the result was compared with the
    reference on fresh inputs in the final phase, and another configuration gave it where the default is the reference
    and there was another. ``site``: the service that a service had it from, through however many
    others; None for a record of its own. ``reach``: what is known of ``config`` at other shapes; None in records of
    older versions.
    """

    noun: ClassVar[str] = "record"

    kernel_name: str
    kernel_hash: str
    device: DeviceFingerprint
    shape: Mapping[str, Count]
    dtype: str
    toolchain: Mapping[str, str]
    config: Mapping[str, Scalar]
    default_config: Mapping[str, Scalar]
    time_ns: Interval
    default_time_ns: Interval
    speedup: Interval
    verdict: Verdict
    trials: Count
    checked: bool
    dims_from_arguments: Mapping[str, str] = field(default_factory=dict)
    dtype_argument: str | None = None
    created_at: str = field(default_factory=utc_now)
    profile_sha256: str | None = None
    challenger: Interval | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    shape_key: str = ""
    site: str | None = None
    reach: Reach | None = None

    def __post_init__(self) -> None:
        expected = shape_key(self.shape)
        if self.shape_key not in ("", expected):
            raise ValueError(f"shape_key {self.shape_key!r} does not belong to the shape; it would be {expected!r}")
        force_setattr(self, "shape_key", expected)
        for value in (*self.config.values(), *self.default_config.values()):
            if isinstance(value, int | float) and not -MOST_INTEGER <= value <= MOST_INTEGER:
                raise ValueError("a number of a configuration is beyond 64 bits")

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the sizes."""
        return tuple(self.shape)

    def objection(self, shape: Mapping[str, int]) -> str | None:
        """Why ``config`` may not be handed out for another shape, in words; None if it may."""
        reach = self.reach or _UNKNOWN
        broken = reach.broken(self.config, shape)
        return reach.too_large(self.shape, shape) if broken is None else f"the constraint {broken} is not true there"

    @property
    def toolchain_key(self) -> str:
        """The toolchain as canonical JSON: equal for equal names and versions."""
        return canonical_json(dict(self.toolchain))

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What is unique among stored records, and the order of records in a bundle."""
        return (self.kernel_hash, self.device.key, self.dtype, self.shape_key, self.toolchain_key)


def record_id(trial_id: str, device: DeviceFingerprint, toolchain: Mapping[str, str]) -> str:
    """The id of the record that rests on a final trial: a resumed job gives the record the same id again, and one that
    is resumed elsewhere another, as ids are of one key."""
    return str(uuid.uuid5(_NAMESPACE, "\0".join((trial_id, device.key, canonical_json(dict(toolchain))))))
