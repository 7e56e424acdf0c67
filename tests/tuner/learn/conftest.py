"""Searches of products on a modelled GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import modelled_products
import pytest

from deuteron.tuner.cover import TimeTable
from deuteron.tuner.experience import KnownConfig, SearchLog
from deuteron.tuner.learn import kernel_hash_of
from deuteron.tuner.records import DeviceFingerprint
from deuteron.tuner.workloads import builtin_workload

H200 = DeviceFingerprint("cuda", "NVIDIA H200", sm_count=132, memory_bytes=144 << 30, compute_capability=(9, 0))


def searches_of(table: TimeTable, toolchain: Mapping[str, str]) -> list[SearchLog]:
    """The table as searches of the built-in matmul."""
    spec = builtin_workload("matmul")
    return [
        SearchLog(
            spec.kernel.name,
            kernel_hash_of(spec),
            H200.key,
            shape,
            "f16",
            tuple(KnownConfig({**table.configs[c], "persistent": False}, time) for c, time in row.items()),
            toolchain,
        )
        for shape, row in zip(table.shapes, table.times, strict=True)
    ]


@pytest.fixture(scope="session")
def searches() -> Callable[[TimeTable, Mapping[str, str]], list[SearchLog]]:
    return searches_of


@pytest.fixture(scope="session")
def modelled() -> TimeTable:
    """16 configurations at 12 shapes."""
    among = modelled_products.shapes([(4096, 4096), (14336, 4096), (1024, 8192)], (16, 128, 1024, 4096))
    return modelled_products.table(16, seed=3, among=among)
