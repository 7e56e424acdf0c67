"""A runner with the signature of ``run_job`` that measures nothing: configurations 0, 1, 2 ... take the time
that the budget gives each. The kill tests need searches of known length whose trials can be counted.

It runs in worker processes, named by ``DEUTERON_RUNNER=paced_runner:run`` with this folder on PYTHONPATH.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from deuteron.tuner import ConfigRecord, DeviceFingerprint, Interval, JobSpec, Trial
from deuteron.tuner.events import (
    JobCancelled,
    JobFinished,
    JobStarted,
    ShapeFinished,
    TrialFinished,
    TuneEvent,
)
from deuteron.tuner.experience import SearchLog, SearchPlace
from deuteron.tuner.records.reach import Reach

DEVICE = DeviceFingerprint(
    kind="cpu",
    name="Test CPU",
    pci_device_id=None,
    sm_count=2,
    memory_bytes=1 << 30,
    compute_capability=None,
    mig=None,
    power_cap_watts=None,
)


def make_trial(number: int, *, time_ns: float | None = None, status: str = "ok") -> Trial:
    median = time_ns or 1000.0 + 10.0 * number
    return Trial(
        id=str(uuid.uuid4()),
        number=number,
        config={"BLOCK": number},
        status=status,
        time_ns=Interval(median, median - 1, median + 1, 5) if status == "ok" else None,
        error=None,
        metrics={},
        phase="screen",
        started_at=datetime.now(UTC).isoformat(),
        duration_s=0.01,
    )


def make_record(
    shape: dict[str, int],
    dtype: str = "f32",
    *,
    kernel_hash: str = "a" * 64,
    kernel_name: str = "softmax_kernel",
    device: DeviceFingerprint = DEVICE,
    median_ns: float = 1000.0,
    block: int = 128,
) -> ConfigRecord:
    return ConfigRecord(
        id=str(uuid.uuid4()),
        kernel_name=kernel_name,
        kernel_hash=kernel_hash,
        device=device,
        shape=shape,
        dtype=dtype,
        toolchain={"deuteron": "0.1.0", "llvm": "20"},
        config={"BLOCK": block, "num_warps": 4},
        default_config={"BLOCK": 64, "num_warps": 4},
        time_ns=Interval(median_ns, median_ns * 0.99, median_ns * 1.01, 32),
        default_time_ns=Interval(2 * median_ns, 1.98 * median_ns, 2.02 * median_ns, 32),
        speedup=Interval(2.0, 1.96, 2.04, 32),
        verdict="FASTER",
        trials=20,
        checked=True,
        created_at=datetime.now(UTC).isoformat(),
        profile_sha256=None,
        reach=Reach(sizes=dict.fromkeys(shape, 1 << 62), together=True),
    )


def run(
    spec: JobSpec,
    *,
    emit: Callable[[TuneEvent], None],
    finished: Iterable[tuple[dict[str, int], str, Trial]],
    cancelled: Callable[[], bool],
    workdir: Path,
    known: Callable[[SearchPlace], Iterable[SearchLog]],
) -> list[ConfigRecord]:
    """Try configurations 0 ... budget.trials - 1 for every shape; those in ``finished`` are not repeated."""
    records: list[ConfigRecord] = []
    done = list(finished)
    kernel_hash = next(spec.problems()).source.hash
    trials, seconds = spec.budget.trials or 1, spec.budget.seconds or 0.0
    emit(JobStarted(spec.workload.kernel.name, DEVICE.key, spec.strategy, 1, trials, seconds))
    for shape in spec.shapes:
        for dtype in spec.dtypes:
            measured = {trial.number for s, d, trial in done if (dict(s), d) == (dict(shape), dtype)}
            for number in range(trials):
                if number in measured:
                    continue
                if cancelled():
                    emit(JobCancelled())
                    return records
                time.sleep(seconds / trials)
                trial = make_trial(number)
                emit(TrialFinished(shape=dict(shape), dtype=dtype, trial=trial, incumbent=trial.id))
            records.append(make_record(dict(shape), dtype, kernel_hash=kernel_hash))
            emit(ShapeFinished(record=records[-1]))
    (workdir / "search.hatchet").write_text("[]")
    emit(JobFinished(tuple(record.id for record in records), seconds, profile="search.hatchet"))
    return records
