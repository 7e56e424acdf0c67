"""Records of one kernel, for services that ask each other."""

from __future__ import annotations

from typing import Any

from deuteron.tuner import ConfigRecord, DeviceFingerprint
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.records.reach import Reach

H200 = DeviceFingerprint(kind="cuda", name="NVIDIA H200", compute_capability=(9, 0))
KERNEL = "ab" * 32
TIME = Interval(1000.0, 990.0, 1010.0, 20)


def record(m: int, block: int = 64, **more: Any) -> ConfigRecord:
    """A record of the kernel for M=m."""
    fields: dict[str, Any] = {
        "kernel_hash": KERNEL,
        "device": H200,
        "shape": {"M": m},
        "toolchain": {"compiler": "1"},
        **more,
    }
    return ConfigRecord(
        kernel_name="kernel",
        dtype="f32",
        config={"BLOCK": block},
        default_config={"BLOCK": 32},
        time_ns=TIME,
        default_time_ns=TIME,
        speedup=TIME,
        verdict="FASTER",
        trials=3,
        checked=True,
        reach=Reach(sizes={"M": 1 << 62}),
        **fields,
    )
