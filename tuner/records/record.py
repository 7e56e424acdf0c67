"""The best configuration for a kernel, device, shape and dtype, with the evidence for it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import SchemaError
from ..job import shape_key
from ..json_fields import Fields, JsonObject, Scalar, canonical_json, expect_text
from ..measure.statistics import VERDICTS, Interval
from ..space import read_config
from ..trial import utc_now
from ..workloads.spec import read_shape
from .fingerprint import DeviceFingerprint

_NAMESPACE = uuid.UUID("6f0d0d1e-6c0a-4c87-9b0e-7d2a6f6b6f53")


@dataclass(frozen=True)
class ConfigRecord:
    """What a search found. It is never slower than the default: ``config`` differs from ``default_config`` only where
    the final measurement called it FASTER; else it is the default, and ``speedup`` is exactly 1.

    ``verdict`` compares the best challenger with the default: SAME, SLOWER and AMBIGUOUS say why the default was
    kept. Times are medians in ns of the final phase with 95 % intervals; ``speedup`` is the paired ratio default/best,
    ``challenger`` the same ratio of the best challenger, taken or not, with an interval that holds for all finalists
    together; None where the search had no challenger.
    ``toolchain``: names and versions that the code depended on. ``dims_from_arguments`` and ``dtype_argument`` tell a
    launcher where shape and dtype are found among the arguments (:class:`~..workloads.WorkloadSpec`).
    ``checked``: the result was compared with the reference on fresh inputs in the final phase.
    """

    kernel_name: str
    kernel_hash: str
    device: DeviceFingerprint
    shape: Mapping[str, int]
    dtype: str
    toolchain: Mapping[str, str]
    config: Mapping[str, Scalar]
    default_config: Mapping[str, Scalar]
    time_ns: Interval
    default_time_ns: Interval
    speedup: Interval
    verdict: str
    trials: int
    checked: bool
    dims_from_arguments: Mapping[str, str] = field(default_factory=dict)
    dtype_argument: str | None = None
    created_at: str = field(default_factory=utc_now)
    profile_sha256: str | None = None
    challenger: Interval | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def shape_key(self) -> str:
        return shape_key(self.shape)

    @property
    def toolchain_key(self) -> str:
        return canonical_json(dict(self.toolchain))

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What is unique among stored records, and the order of records in a bundle."""
        return (
            self.kernel_hash,
            self.device.key,
            self.dtype,
            self.shape_key,
            self.toolchain_key,
        )

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "kernel_name": self.kernel_name,
            "kernel_hash": self.kernel_hash,
            "device": self.device.to_json(),
            "shape": dict(self.shape),
            "shape_key": self.shape_key,
            "dtype": self.dtype,
            "toolchain": dict(self.toolchain),
            "config": dict(self.config),
            "default_config": dict(self.default_config),
            "time_ns": self.time_ns.to_json(),
            "default_time_ns": self.default_time_ns.to_json(),
            "speedup": self.speedup.to_json(),
            "verdict": self.verdict,
            "trials": self.trials,
            "checked": self.checked,
            "dims_from_arguments": dict(self.dims_from_arguments),
            "dtype_argument": self.dtype_argument,
            "created_at": self.created_at,
            "profile_sha256": self.profile_sha256,
            "challenger": None if self.challenger is None else self.challenger.to_json(),
        }

    @staticmethod
    def from_json(value: object, where: str = "record") -> ConfigRecord:
        """Read a record; fields that this version does not know are ignored. Raises :class:`SchemaError`."""
        fields = Fields(value, where)
        shape = read_shape(fields.get("shape"), fields.where("shape"))
        if fields.has("shape_key") and fields.text("shape_key") != shape_key(shape):
            raise SchemaError(
                f"{where}: shape_key {fields.text('shape_key')!r} does not belong to the shape",
                hint=f"it would be {shape_key(shape)!r}",
            )
        return ConfigRecord(
            id=fields.text("id"),
            kernel_name=fields.text("kernel_name"),
            kernel_hash=fields.text("kernel_hash"),
            device=DeviceFingerprint.from_json(fields.get("device"), fields.where("device")),
            shape=shape,
            dtype=fields.text("dtype"),
            toolchain=fields.mapping("toolchain", expect_text),
            config=read_config(fields.get("config"), fields.where("config")),
            default_config=read_config(fields.get("default_config"), fields.where("default_config")),
            time_ns=Interval.from_json(fields.get("time_ns"), fields.where("time_ns")),
            default_time_ns=Interval.from_json(fields.get("default_time_ns"), fields.where("default_time_ns")),
            speedup=Interval.from_json(fields.get("speedup"), fields.where("speedup")),
            verdict=fields.one_of("verdict", VERDICTS),
            trials=fields.integer("trials"),
            checked=fields.boolean("checked"),
            dims_from_arguments=fields.mapping("dims_from_arguments", expect_text)
            if fields.has("dims_from_arguments")
            else {},
            dtype_argument=fields.optional_text("dtype_argument"),
            created_at=fields.text("created_at"),
            profile_sha256=fields.optional_text("profile_sha256"),
            challenger=Interval.from_json(fields.get("challenger"), fields.where("challenger"))
            if fields.has("challenger")
            else None,
        )


def record_id(trial_id: str) -> str:
    """The id of the record that rests on a final trial: a resumed job gives the record the same id again."""
    return str(uuid.uuid5(_NAMESPACE, trial_id))
