"""What is stored of a kernel, as much of it as a predictor is trained from.

``deuteron learn --from URL`` gets the newest 64 searches and 10,000 trials of a kernel, whatever their devices. Here
every device has its own share, so that one that is measured all day leaves the others theirs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TypeAlias

from deuteron.tuner import ConfigRecord, JobSpec, shape_key
from deuteron.tuner.codec import canonical_json
from deuteron.tuner.experience import KnownConfig, SearchLog, logs_of_records
from deuteron.tuner.experience.search_log import MOST_CONFIGS
from deuteron.tuner.learn import LEAST_SHAPES
from deuteron.tuner.workloads import WorkloadSpec

from ..store import ScreenedTime, Transaction

#: Of each device: the newest jobs, so many of their screened trials looked at, so many trained from.
MOST_JOBS, MOST_TIMINGS, MOST_TRIALS = 500, 200_000, 20_000
#: Shapes in one dtype with one toolchain on one device.
MOST_SHAPES = 256
#: The newest records of the kernel, for shapes whose trials are not here: those that were imported.
MOST_RECORDS = 2_000

#: Dtype, shape and toolchain as JSON text.
_Place: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class KnownKernel:
    """A kernel's text as its newest job has it, and what was measured of it."""

    workload: WorkloadSpec
    logs: list[SearchLog]


def has_enough_shapes(tx: Transaction, kernel_hash: str) -> bool:
    """Whether the kernel was searched at :data:`LEAST_SHAPES` shapes in one dtype on one device. A quick look:
    toolchains and spaces may still tell the searches apart."""
    shapes: dict[tuple[str, str], set[str]] = {}
    for device_key, dtype in tx.configs.places(kernel_hash):
        found = shapes.setdefault((device_key, dtype), set())
        for *_, shape in tx.configs.keys_of(kernel_hash, [device_key], dtype):
            found.add(shape)
            if len(found) >= LEAST_SHAPES:
                return True
    for job_id, device_key in tx.jobs.measured(kernel_hash, limit=MOST_JOBS):
        for dtype, shape in tx.trials.searched(job_id):
            found = shapes.setdefault((device_key, dtype), set())
            found.add(shape_key(json.loads(shape)))
            if len(found) >= LEAST_SHAPES:
                return True
    return False


def known_kernel(tx: Transaction, kernel_hash: str) -> KnownKernel | None:
    """What there is to learn from, newest first; None of a kernel that no job ran. Searches over other dims than those
    of the newest job are left out.

    Raises:
        DeuteronError: the newest job is not one that this version can read.
    """
    jobs = tx.jobs.measured(kernel_hash, limit=MOST_JOBS)
    if not jobs:
        return None
    workload = JobSpec.from_json(json.loads(tx.jobs.get(jobs[0][0]).spec)).workload
    devices: dict[str, _Device] = {}
    for job_id, device_key in jobs:
        device = devices.setdefault(device_key, _Device(workload.kernel.name, kernel_hash, device_key))
        device.read_job(tx, job_id)
    for log in _records(tx, kernel_hash):
        devices.setdefault(log.device, _Device(log.kernel_name, kernel_hash, log.device)).add_record(log)
    logs = [log for device in devices.values() for log in device.logs.values()]
    return KnownKernel(workload, [log for log in logs if set(log.shape) == set(workload.dims)])


@dataclass(slots=True)
class _Device:
    """What was read of one device so far."""

    kernel_name: str
    kernel_hash: str
    key: str
    logs: dict[_Place, SearchLog] = field(default_factory=dict)
    shapes: dict[tuple[str, str], int] = field(default_factory=dict)
    trials: int = 0
    timings: int = 0

    def read_job(self, tx: Transaction, job_id: str) -> None:
        if min(MOST_TIMINGS - self.timings, MOST_TRIALS - self.trials) <= 0:
            return
        toolchain = tx.config_history.toolchain_of(job_id) or "{}"
        searches: dict[tuple[str, str], list[ScreenedTime]] = {}
        for timing in tx.trials.timings(job_id, limit=MOST_TIMINGS - self.timings):
            searches.setdefault((timing.dtype, timing.shape), []).append(timing)
            self.timings += 1
        for (dtype, shape), timings in searches.items():
            fastest = sorted(timings, key=lambda timing: timing.median_ns)[:MOST_CONFIGS]
            place = dtype, shape, toolchain
            if self._has_room(place, len(fastest)):
                self._add(place, self._log(tx, job_id, place, fastest))

    def add_record(self, log: SearchLog) -> None:
        """A record tells of two configurations: it counts where no trial of its shape is known."""
        shape = canonical_json(dict(log.shape))  # as the trials' column has it
        known = any(place[:2] == (log.dtype, shape) for place in self.logs)
        place = log.dtype, shape, canonical_json(dict(log.toolchain))
        if not known and self._has_room(place, len(log.known)):
            self._add(place, log)

    def _has_room(self, place: _Place, trials: int) -> bool:
        """Of several searches of a shape the one that measured most counts, of equal ones the newest."""
        held = self.logs.get(place)
        if held is not None:
            return trials > len(held.known) and self.trials + trials <= MOST_TRIALS
        return self.shapes.get((place[0], place[2]), 0) < MOST_SHAPES and self.trials + trials <= MOST_TRIALS

    def _add(self, place: _Place, log: SearchLog | None) -> None:
        if log is None:
            return
        if place not in self.logs:
            self.shapes[place[0], place[2]] = self.shapes.get((place[0], place[2]), 0) + 1
        self.logs[place] = log
        self.trials += len(log.known)

    def _log(self, tx: Transaction, job_id: str, place: _Place, fastest: list[ScreenedTime]) -> SearchLog | None:
        """None where a worker reported what no search can have, such as a size of 0."""
        dtype, shape, toolchain = place
        bodies = tx.trials.bodies(job_id, [timing.sequence for timing in fastest])
        try:
            return SearchLog(
                self.kernel_name,
                self.kernel_hash,
                self.key,
                json.loads(shape),
                dtype,
                tuple(KnownConfig(json.loads(bodies[t.sequence])["config"], t.median_ns) for t in fastest),
                json.loads(toolchain),
            )
        except ValueError:
            return None


def _records(tx: Transaction, kernel_hash: str) -> list[SearchLog]:
    stored = tx.configs.of_kernel(kernel_hash, limit=MOST_RECORDS)
    return logs_of_records(ConfigRecord.from_json(json.loads(config.body)) for config in stored)
