"""Records made up for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.records import ConfigRecord, DeviceFingerprint

H100 = DeviceFingerprint(
    kind="cuda",
    name="NVIDIA H100 80GB HBM3",
    sm_count=132,
    memory_bytes=85_520_809_984,
    compute_capability=(9, 0),
    power_cap_watts=700.0,
)


@pytest.fixture
def h100() -> DeviceFingerprint:
    return H100


RecordMaker = Callable[..., ConfigRecord]


@pytest.fixture
def make_record() -> RecordMaker:
    def make(
        shape: Mapping[str, int],
        *,
        kernel_hash: str = "ab" * 32,
        device: DeviceFingerprint = H100,
        dtype: str = "f32",
        toolchain: Mapping[str, str] | None = None,
        created_at: str = "2026-01-01T00:00:00+00:00",
        config: Mapping[str, int] | None = None,
        **more: object,
    ) -> ConfigRecord:
        best = dict(config or {"BLOCK": 128, "num_warps": 4})
        return ConfigRecord(
            kernel_name="kernel",
            kernel_hash=kernel_hash,
            device=device,
            shape=dict(shape),
            dtype=dtype,
            toolchain=dict(toolchain or {"deuteron": "0.1.0"}),
            config=best,
            default_config={"BLOCK": 64, "num_warps": 4},
            time_ns=Interval(1000.0, 990.0, 1010.0, 20),
            default_time_ns=Interval(1500.0, 1490.0, 1510.0, 20),
            speedup=Interval(1.5, 1.48, 1.52, 20),
            verdict="FASTER",
            trials=40,
            checked=True,
            created_at=created_at,
            **more,  # type: ignore[arg-type]
        )

    return make
