"""What one finished search measured, as later searches read it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec import field

from ..codec import Document, Finite, Scalar
from ..measure.statistics import Interval
from ..records import ConfigRecord
from ..space import config_key
from ..trial import Trial
from .phases import scaled, settled_times

#: Configurations of one log that are kept, the fastest; of logs handed over at once, the newest.
MOST_CONFIGS, MOST_LOGS = 400, 64


class KnownConfig(Document, frozen=True):
    """A configuration that worked, and its median time; None where it is only said to be good. ``range_ns``: the ends
    of the interval of that time, None where they are not known."""

    noun: ClassVar[str] = "known configuration"

    config: Mapping[str, Scalar]
    time_ns: Finite | None
    range_ns: tuple[Finite, Finite] | None = None

    def __post_init__(self) -> None:
        if self.time_ns is not None and not 0 < self.time_ns < math.inf:
            raise ValueError(f"a time of {self.time_ns} ns")
        if self.range_ns is not None and not _is_around(self.range_ns, self.time_ns):
            raise ValueError(f"an interval from {self.range_ns[0]} to {self.range_ns[1]} around {self.time_ns} ns")

    @classmethod
    def of(cls, config: Mapping[str, Scalar], time: Interval) -> KnownConfig:
        """One whose time was measured; of an interval that is none, as files from elsewhere may have, the median."""
        ends = (time.low, time.high)
        return cls(config, time.median, ends if _is_around(ends, time.median) else None)


class SearchLog(Document, frozen=True):
    """The configurations of a kernel that worked for one shape and dtype on one device, fastest first.

    ``device`` is the key of the device's fingerprint, ``kernel_hash`` that of the kernel's text. All times of a log
    were taken alike: they are compared with each other, never with those of another log. ``toolchain``: what they were
    measured with; empty where that is not known.
    """

    noun: ClassVar[str] = "search log"

    kernel_name: str
    kernel_hash: str
    device: str
    shape: Mapping[str, int]
    dtype: str
    known: tuple[KnownConfig, ...]
    toolchain: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.known) > MOST_CONFIGS:
            raise ValueError(f"{len(self.known)} configurations; a log has at most {MOST_CONFIGS}")
        if any(size < 1 for size in self.shape.values()):
            raise ValueError("a size below 1")


class KnownSearches(Document, frozen=True):
    """What a service answers about the searches of a kernel."""

    noun: ClassVar[str] = "searches"

    searches: tuple[SearchLog, ...]


def logs_of_trials(
    kernel_name: str,
    kernel_hash: str,
    device: str,
    trials: Iterable[tuple[Mapping[str, int], str, Trial]],
    toolchain: Mapping[str, str] | None = None,
) -> list[SearchLog]:
    """A log for each shape and dtype among the trials of one kernel and device, of configurations that worked
    (:func:`~.phases.settled_times`). Where none of one worked there is none."""
    tasks: dict[str, tuple[Mapping[str, int], str, list[Trial]]] = {}
    for shape, dtype, trial in trials:
        if all(size >= 1 for size in shape.values()):
            tasks.setdefault(config_key(shape) + dtype, (shape, dtype, []))[-1].append(trial)
    known = ((shape, dtype, known_configs(task)) for shape, dtype, task in tasks.values())
    return [
        SearchLog(kernel_name, kernel_hash, device, dict(shape), dtype, configs, toolchain or {})
        for shape, dtype, configs in known
        if configs
    ]


def known_configs(trials: Sequence[Trial]) -> tuple[KnownConfig, ...]:
    """What the trials of one search say: its fastest configurations."""
    return _fastest(KnownConfig.of(one.config, one.interval) for one in settled_times(trials))


def logs_of_records(records: Iterable[ConfigRecord]) -> list[SearchLog]:
    """A log of two configurations for each record: the one that was kept, and the default that it was compared with, in
    pairs. Records of no search, with a size of 0, have none."""
    logs = []
    for record in records:
        if any(size < 1 for size in record.shape.values()):
            continue  # no search has it, though a bundle or a database of an older version may
        found = {
            config_key(config): KnownConfig.of(config, time)
            for config, time in (
                (record.default_config, record.default_time_ns),
                (record.config, _in_pairs(record)),
            )
            if time is not None and 0 < time.median < math.inf
        }
        known = _fastest(found.values())
        logs.append(
            SearchLog(
                record.kernel_name,
                record.kernel_hash,
                record.device.key,
                record.shape,
                record.dtype,
                known,
                record.toolchain,
            )
        )
    return logs


def _in_pairs(record: ConfigRecord) -> Interval | None:
    """The default's time over the speed-up; None where a record from elsewhere has one that nobody measures."""
    if min(record.speedup.low, record.speedup.median, record.speedup.high) <= 0:
        return None
    return scaled(record.speedup.inverse(), record.default_time_ns.median)


def _is_around(ends: tuple[float, float], time_ns: float | None) -> bool:
    return time_ns is not None and 0 < ends[0] <= time_ns <= ends[1] < math.inf


def _fastest(known: Iterable[KnownConfig]) -> tuple[KnownConfig, ...]:
    return tuple(sorted(known, key=lambda one: one.time_ns or math.inf)[:MOST_CONFIGS])
