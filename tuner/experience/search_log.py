"""What one finished search measured, as later searches read it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import ClassVar

from msgspec import field

from ..codec import Document, Finite, Scalar
from ..records import ConfigRecord
from ..space import config_key
from ..trial import Trial

#: Configurations of one log that are kept, the fastest; of logs handed over at once, the newest.
MOST_CONFIGS, MOST_LOGS = 400, 64


class KnownConfig(Document, frozen=True):
    """A configuration that worked, and its median time; None where it is only said to be good."""

    noun: ClassVar[str] = "known configuration"

    config: Mapping[str, Scalar]
    time_ns: Finite | None

    def __post_init__(self) -> None:
        if self.time_ns is not None and not self.time_ns > 0:
            raise ValueError(f"a time of {self.time_ns} ns")


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
    """A log for each shape and dtype among the trials of one kernel and device, of screened ones that worked. Where no
    trial of one worked there is none."""
    tasks: dict[str, tuple[Mapping[str, int], str, dict[str, KnownConfig]]] = {}
    for shape, dtype, trial in trials:
        if any(size < 1 for size in shape.values()):
            continue
        if trial.phase == "screen" and trial.time_ns is not None and trial.time_ns.median > 0:
            _, _, known = tasks.setdefault(config_key(shape) + dtype, (shape, dtype, {}))
            known[config_key(trial.config)] = KnownConfig(trial.config, trial.time_ns.median)
    return [
        SearchLog(kernel_name, kernel_hash, device, dict(shape), dtype, _fastest(known.values()), toolchain or {})
        for shape, dtype, known in tasks.values()
    ]


def logs_of_records(records: Iterable[ConfigRecord]) -> list[SearchLog]:
    """A log of two configurations for each record: the one that was kept, and the default that it was compared with.
    Records of no search, with a size of 0, have none."""
    logs = []
    for record in records:
        if any(size < 1 for size in record.shape.values()):
            continue  # no search has it, though a bundle or a database of an older version may
        found = {
            config_key(config): KnownConfig(config, time.median)
            for config, time in (
                (record.default_config, record.default_time_ns),
                (record.config, record.time_ns),
            )
            if time.median > 0
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


def _fastest(known: Iterable[KnownConfig]) -> tuple[KnownConfig, ...]:
    return tuple(sorted(known, key=lambda one: one.time_ns or math.inf)[:MOST_CONFIGS])
