"""What is stored of a kernel, as much of it as a predictor is trained from.

``deuteron learn --from URL`` gets the newest 64 searches and 10,000 trials of a kernel, whatever their devices. Here
every device has its own share, so that one that is measured all day leaves the others theirs.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

from deuteron.tuner import JobSpec, Trial, shape_key
from deuteron.tuner.codec import canonical_json, decode
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.experience import SearchLog, known_configs, logs_of_records
from deuteron.tuner.experience.search_log import MOST_CONFIGS
from deuteron.tuner.learn import LEAST_SHAPES
from deuteron.tuner.workloads import WorkloadSpec

from ..configs import readable_records
from ..store import ScreenedTime, Transaction

#: Of each device: the newest jobs, so many of their screened trials looked at, so many trained from, evenly divided.
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
        devices.setdefault(device_key, _Device(workload.kernel.name, kernel_hash, device_key)).look_at(tx, job_id)
    logs = [log for device in devices.values() for log in device.read(tx)]
    known = {(log.device, log.dtype, shape_key(log.shape)) for log in logs}
    for log in _records(tx, kernel_hash):
        device = devices.setdefault(log.device, _Device(log.kernel_name, kernel_hash, log.device))
        alone = (log.device, log.dtype, shape_key(log.shape)) not in known
        if alone and device.has_room(log.dtype, canonical_json(dict(log.toolchain))):
            logs.append(log)
    return KnownKernel(workload, [log for log in logs if set(log.shape) == set(workload.dims)])


@dataclass(frozen=True, slots=True)
class _Search:
    """One search of a job: its fastest trials."""

    job_id: str
    fastest: list[ScreenedTime]


@dataclass(slots=True)
class _Device:
    """What was seen of one device so far."""

    kernel_name: str
    kernel_hash: str
    key: str
    searches: dict[_Place, _Search] = field(default_factory=dict)
    shapes: Counter[tuple[str, str]] = field(default_factory=Counter)
    timings: int = 0

    def look_at(self, tx: Transaction, job_id: str) -> None:
        """Note the searches of the next older job. Of several searches of a shape the one that measured most counts, of
        equal ones the newest."""
        if self.timings >= MOST_TIMINGS:
            return
        toolchain = tx.config_history.toolchain_of(job_id) or "{}"
        found: dict[tuple[str, str], list[ScreenedTime]] = {}
        for timing in tx.trials.timings(job_id, limit=MOST_TIMINGS - self.timings):
            found.setdefault((timing.dtype, timing.shape), []).append(timing)
            self.timings += 1
        for (dtype, shape), timings in found.items():
            place = dtype, shape, toolchain
            fastest = sorted(timings, key=lambda timing: timing.median_ns)[:MOST_CONFIGS]
            held = self.searches.get(place)
            if len(fastest) > len(held.fastest) if held else self.has_room(dtype, toolchain):
                self.searches[place] = _Search(job_id, fastest)

    def has_room(self, dtype: str, toolchain: str) -> bool:
        """Whether there may be another shape; counts it."""
        if self.shapes[dtype, toolchain] >= MOST_SHAPES:
            return False
        self.shapes[dtype, toolchain] += 1
        return True

    def read(self, tx: Transaction) -> list[SearchLog]:
        """The logs of the searches, each with the same share of the trials: shapes teach more than slow configurations
        do."""
        share = MOST_TRIALS // max(1, len(self.searches))
        logs = (self._log(tx, place, search, share) for place, search in self.searches.items())
        return [log for log in logs if log is not None]

    def _log(self, tx: Transaction, place: _Place, search: _Search, share: int) -> SearchLog | None:
        """None where a worker reported what no search can have, such as a size of 0."""
        dtype, shape, toolchain = place
        fastest = search.fastest[: max(2, share)]
        screened = tx.trials.bodies(search.job_id, [timing.sequence for timing in fastest])
        bodies = [*screened.values(), *tx.trials.decided(search.job_id, shape, dtype)]
        try:
            return SearchLog(
                self.kernel_name,
                self.kernel_hash,
                self.key,
                json.loads(shape),
                dtype,
                known_configs([decode(body, Trial, "trial") for body in bodies]),
                json.loads(toolchain),
            )
        except (ValueError, SchemaError):
            return None


def _records(tx: Transaction, kernel_hash: str) -> list[SearchLog]:
    stored = tx.configs.of_kernel(kernel_hash, limit=MOST_RECORDS)
    return logs_of_records(readable_records(config.body for config in stored))
