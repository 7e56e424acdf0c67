"""Several shapes and dtypes in one job, and the time they share."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from deuteron.tuner.evaluate.messages import Screened
from deuteron.tuner.events import ShapeStarted
from deuteron.tuner.job import Budget, JobSpec
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads import builtin_workload


def test_several_shapes_and_dtypes_share_the_time(fakes: ModuleType, tmp_path: Path) -> None:
    spec = JobSpec(
        workload=builtin_workload("softmax"),
        shapes=({"M": 128, "N": 256}, {"M": 64, "N": 32}),
        dtypes=("f32", "bf16"),
        budget=Budget(5, 60.0),
    )
    run = fakes.Run(spec, fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert [(r.shape_key, r.dtype) for r in run.records] == [
        ("M=128,N=256", "f32"),
        ("M=128,N=256", "bf16"),
        ("M=64,N=32", "f32"),
        ("M=64,N=32", "bf16"),
    ]
    started = [e for e in run.events if isinstance(e, ShapeStarted)]
    assert started[0].bytes == 2 * 128 * 256 * 4 and started[1].bytes == 2 * 128 * 256 * 2


def two_shapes(fakes: ModuleType, seconds: float | None = None, trials: int | None = 6) -> JobSpec:
    shapes = ({"M": 4096, "N": 512}, {"M": 2048, "N": 512})
    return replace(fakes.job(trials=trials, seconds=seconds), shapes=shapes)


def test_trials_of_one_shape_say_nothing_about_another(fakes: ModuleType, tmp_path: Path) -> None:
    first = fakes.Run(two_shapes(fakes), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    of_first = [item for item in first.finished if item[0]["M"] == 4096]
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    second = fakes.Run(two_shapes(fakes), evaluator, tmp_path, finished=of_first)
    assert {item[0]["M"] for item in second.finished} == {2048}
    assert len(evaluator.screened) == 6
    assert [(r.shape_key, r.trials) for r in second.records] == [("M=4096,N=512", 6), ("M=2048,N=512", 6)]


def test_time_that_a_shape_used_is_gone_for_the_next_one(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that only screening moves, by 5 s each: the second shape has what is left of 100 s, not all of it."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    screen = evaluator.screen

    def slow(config: Configuration, best_ns: float | None) -> Screened:
        now[0] += 5.0
        return screen(config, best_ns)

    monkeypatch.setattr(evaluator, "screen", slow)
    run = fakes.Run(two_shapes(fakes, seconds=100.0, trials=None), evaluator, tmp_path)
    screens = {m: sum(s["M"] == m and t.phase == "screen" for s, _, t in run.finished) for m in (4096, 2048)}
    share = 5.0 * screens[4096] / 50.0  # the part of a shape's time that goes into screening
    assert 0 < share <= 1
    assert abs(5.0 * screens[2048] - share * (100.0 - 5.0 * screens[4096])) <= 7.5


def test_time_budget_ends_screening(fakes: ModuleType, tmp_path: Path) -> None:
    run = fakes.Run(fakes.job(trials=None, seconds=1e-6), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert sum(t.phase == "screen" for t in run.trials) == 1
    assert run.records[0].verdict == "SAME"
