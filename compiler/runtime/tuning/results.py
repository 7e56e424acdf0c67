"""Timings of configurations, kept on disk from one process to the next.

There is one entry per configuration, so that a changed list of configurations keeps what was timed before. The device's
name is part of the key, since two kinds of GPU with one architecture do not share timings, and on a CPU the number of
threads that share a grid.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

from ...errors import ArgumentMismatch
from ...target import Target
from ..device import Device
from ..launch.kernel import Kernel
from ..launch.loading import grid_threads
from ..variant.cache import Entry, autotune_cache
from ..variant.constants import constant_text
from ..variant.toolchain import toolchain
from .config import Config

#: Median, 20th and 80th percentile in milliseconds; infinite for a configuration that cannot run.
Timing = tuple[float, float, float]
QUANTILES = (0.5, 0.2, 0.8)
FAILED: Timing = (math.inf, math.inf, math.inf)


class TuningResults:
    """The kept timings of one kernel for one tuning key on one device."""

    def __init__(self, kernel: Kernel, key: Sequence[object], device: Device) -> None:
        self._kernel = kernel
        self._key = [constant_text(part) for part in key]  # 1, 1.0 and True are three keys
        self._device = device
        self._toolchain = toolchain(Target.parse(device.target), device.properties.driver)
        self._threads = [f"{grid_threads()} threads"] if device.properties.kind == "cpu" else []

    def _entry_key(self, config: Config) -> str:
        parts = [
            self._kernel.source.hash,
            config.identity(),
            *self._key,
            self._device.properties.name,
            *self._threads,
            *(f"{name}: {value}" for name, value in self._toolchain.items()),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def recall(self, configs: Iterable[Config]) -> tuple[dict[Config, Timing], list[Config]]:
        """The timings that are kept, of these configurations, and which of them were finalists of their search."""
        found: dict[Config, Timing] = {}
        finalists = []
        for config in configs:
            entry = autotune_cache().get(self._entry_key(config))
            times = entry.header.get("timing_ms") if entry is not None else None
            if entry is not None and isinstance(times, list):
                found[config] = as_timing(times)
                if entry.header.get("finalist"):
                    finalists.append(config)
        return found, finalists

    def remember(self, timings: Mapping[Config, Timing], finalists: Sequence[Config]) -> None:
        """Keep these timings; failures are not kept, since another machine state may not have them."""
        for config, timing in timings.items():
            if timing == FAILED:
                continue
            header: dict[str, object] = {
                "kernel": self._kernel.__name__,
                "key": self._key,
                "config": str(config),
                "device": self._device.properties.name,
                "timing_ms": list(timing),
                "finalist": config in finalists,
            }
            autotune_cache().put(self._entry_key(config), Entry(header, {}))


def as_timing(times: float | Sequence[float]) -> Timing:
    """One time, or quantiles in the order of QUANTILES, as a Timing. Raises ArgumentMismatch for anything else."""
    try:
        given = [float(time) for time in (times if isinstance(times, Iterable) else [times])]
        median, low, high = [*given, given[-1], given[-1]][:3]
    except (TypeError, ValueError, IndexError):
        raise ArgumentMismatch(f"timing gave {times!r}", hint="it gives milliseconds: one number, or three") from None
    return median, low, high
