"""What a job says and leaves behind: events, profiles, its own description."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from deuteron.profiler import Profile
from deuteron.tuner.errors import JobError, WorkloadError
from deuteron.tuner.evaluate.messages import Extended
from deuteron.tuner.events import JobCancelled, JobFailed, JobFinished, TuneEvent, event_from_json
from deuteron.tuner.job import JobSpec
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads import WorkloadSpec, builtin_workload


def test_events_survive_json(fakes: ModuleType, tmp_path: Path) -> None:
    run = fakes.Run(fakes.job(trials=6), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    extra: list[TuneEvent] = [JobFailed("broke", "mend it"), JobCancelled()]
    for event in [*run.events, *extra]:
        assert event_from_json(json.loads(json.dumps(event.to_json()))) == event


def test_profile_has_shapes_phases_and_rates(fakes: ModuleType, tmp_path: Path) -> None:
    run = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    profile = Profile.read(tmp_path / "search.hatchet")
    paths = dict(profile.walk())
    best = ("softmax_kernel", "M=4096,N=512 f32", "final", "ROWS=4 TILES=2")
    node = paths[best]
    assert node.metrics["count"] == 1
    assert node.metrics["time (ns)"] == pytest.approx(1000, rel=0.02)
    assert node.metrics["flops"] == 5 * 4096 * 512
    assert node.metrics["bytes"] == 2 * 4096 * 512 * 4
    assert node.metrics["protocol"] == "host clock, warm cache, rounds" and node.metrics["registers"] == 40
    assert "occupancy" not in node.metrics and "memory_share" not in node.metrics  # nobody knows them
    compile_frame = ("softmax_kernel", "M=4096,N=512 f32", "screen", "ROWS=4 TILES=2", "compile")
    assert paths[compile_frame].metrics["cpu_time (ns)"] == 10_000_000
    finished = run.events[-1]
    assert isinstance(finished, JobFinished) and finished.profile == "search.hatchet"
    shape_file = tmp_path / "search-M=4096,N=512-f32.hatchet"
    assert shape_file.exists() and run.records[0].profile_sha256


def test_profile_says_what_was_done_between_trials(fakes: ModuleType, tmp_path: Path) -> None:
    class Slow(fakes.FakeEvaluator):  # type: ignore[name-defined, misc]
        def extend(self, config: Configuration, seed: int) -> Extended:
            time.sleep(0.05)
            return super().extend(config, seed)

        def next_compiled(self, configs: Sequence[Configuration]) -> int:
            time.sleep(0.005)
            return super().next_compiled(configs)

    began = time.monotonic()
    run = fakes.Run(fakes.job(), Slow(fakes.bowl), tmp_path)
    elapsed_ns = (time.monotonic() - began) * 1e9
    paths = dict(Profile.read(tmp_path / "search.hatchet").walk())
    frame = ("softmax_kernel", "M=4096,N=512 f32", "between trials")
    steps = {path[-1]: node.metrics["cpu_time (ns)"] for path, node in paths.items() if path[:-1] == frame}
    assert set(steps) == {"begin", "propose", "wait for compilers", "larger shapes", "end"}
    waited = sum(trial.phase == "screen" for trial in run.trials) - 1  # for the default nobody chooses
    assert steps["larger shapes"] >= 50e6 and steps["wait for compilers"] >= waited * 5e6
    assert sum(steps.values()) <= elapsed_ns


def test_a_shape_of_many_dims_has_a_file_too(fakes: ModuleType, tmp_path: Path) -> None:
    data = builtin_workload("softmax").to_json()
    dims = {f"unused_{number}": 1 for number in range(40)}
    workload = WorkloadSpec.from_json({**data, "dims": ["M", "N", *dims], "shapes": []})
    spec = replace(fakes.job(), workload=workload, shapes=({"M": 64, "N": 64, **dims},))
    fakes.Run(spec, fakes.FakeEvaluator(fakes.bowl), tmp_path)
    (name,) = [path.name for path in tmp_path.glob("search-*.hatchet")]
    assert len(name) < 100 and name.endswith("-f32.hatchet")


def test_job_spec_survives_json_and_checks_itself(fakes: ModuleType) -> None:
    spec = fakes.job(trials=5, seconds=3.0, seed=9)
    assert JobSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    short = {"workload": {"builtin": "matmul"}, "budget": {"trials": 3, "seconds": None}}
    read = JobSpec.from_json(short)
    assert read.shapes == builtin_workload("matmul").shapes and read.dtypes == ("f32",)
    base = {"workload": {"builtin": "softmax"}, "shapes": [{"M": 1, "N": 1}]}
    twice = JobSpec.from_json({**base, "shapes": [{"M": 1, "N": 2}, {"M": 1, "N": 1}, {"N": 2, "M": 1}]})
    assert twice.shapes == ({"M": 1, "N": 2}, {"M": 1, "N": 1})
    assert JobSpec.from_json({**base, "dtypes": ["float16", "f32", "f16"]}).dtypes == ("f16", "f32")
    with pytest.raises(WorkloadError, match="lacks 'N'"):
        JobSpec.from_json({**base, "shapes": [{"M": 4}]})
    with pytest.raises(WorkloadError, match="unknown dim 'K'"):
        JobSpec.from_json({**base, "shapes": [{"M": 4, "N": 4, "K": 4}]})
    with pytest.raises(WorkloadError, match="does not support dtype 'i32'"):
        JobSpec.from_json({**base, "dtypes": ["i32"]})
    with pytest.raises(WorkloadError, match="is not a size"):
        JobSpec.from_json({**base, "shapes": [{"M": 0, "N": 4}]})
    with pytest.raises(JobError, match="at least one shape"):
        JobSpec.from_json({**base, "shapes": []})
    with pytest.raises(JobError, match="0 trials"):
        JobSpec.from_json({**base, "budget": {"trials": 0}})
