"""Several shapes and dtypes in one job, and the time they share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from deuteron.tuner.errors import JobError, SpaceError, WorkloadError
from deuteron.tuner.evaluate.messages import Screened
from deuteron.tuner.events import JobFailed, ShapeFinished, ShapeStarted, TrialFinished, TuneEvent
from deuteron.tuner.experience.sources import read_logs
from deuteron.tuner.failures import ShapesFailed
from deuteron.tuner.job import Budget, JobSpec
from deuteron.tuner.local import tune_locally
from deuteron.tuner.progress import event_text
from deuteron.tuner.records import read_bundle
from deuteron.tuner.screening import LEAST_PROPOSED
from deuteron.tuner.space import Configuration, config_key
from deuteron.tuner.study import run_job
from deuteron.tuner.workloads import Problem, builtin_workload


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

    def slow(config: Configuration, best_ns: float | None, meanwhile: Callable[[], None]) -> Screened:
        now[0] += 5.0
        return screen(config, best_ns)

    monkeypatch.setattr(evaluator, "screen", slow)
    run = fakes.Run(two_shapes(fakes, seconds=100.0, trials=None), evaluator, tmp_path)
    screens = {m: sum(s["M"] == m and t.phase == "screen" for s, _, t in run.finished) for m in (4096, 2048)}
    share = 5.0 * screens[4096] / 50.0  # the part of a shape's time that goes into screening
    assert 0 < share <= 1
    assert abs(5.0 * screens[2048] - share * (100.0 - 5.0 * screens[4096])) <= 7.5


@pytest.mark.parametrize(("seconds", "left"), [(1.5, 14.8), (2.0, 19.3), (4.0, 20.0)])
def test_what_a_race_will_take_is_left_of_the_time(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, left: float
) -> None:
    """Nine are checked and timed, and something follows; but at most half of 40 s is left."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    screen = evaluator.screen

    def slow(config: Configuration, best_ns: float | None, meanwhile: Callable[[], None]) -> Screened:
        now[0] += seconds
        return replace(screen(config, best_ns), check_seconds=seconds - 0.25, measure_seconds=0.25)

    monkeypatch.setattr(evaluator, "screen", slow)
    run = fakes.Run(fakes.job(trials=None, seconds=40.0), evaluator, tmp_path)
    assert 40.0 - seconds * sum(t.phase == "screen" for t in run.trials) == pytest.approx(left, abs=seconds)


def test_time_budget_ends_screening(fakes: ModuleType, tmp_path: Path) -> None:
    run = fakes.Run(fakes.job(trials=None, seconds=1e-6), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert sum(t.phase == "screen" for t in run.trials) == 1
    assert (run.records[0].verdict, run.records[0].challenger) == ("AMBIGUOUS", None)


def known_job(fakes: ModuleType, **more: object) -> JobSpec:
    spec: JobSpec = replace(
        fakes.job(trials=25, strategy="surrogate", **more), shapes=({"M": 4096, "N": 512}, {"M": 8192, "N": 512})
    )
    return spec


def test_the_next_shape_starts_from_the_one_before(fakes: ModuleType, tmp_path: Path) -> None:
    """Both are alike here: the second tries the best of the first at once, and ends when nothing better comes."""
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    run = fakes.Run(known_job(fakes), evaluator, tmp_path)
    first, second = (event for event in run.events if isinstance(event, ShapeStarted))
    assert first.known == () and len(second.known) == 1
    assert second.known[0].startswith("M=4096,N=512 f32 on cpu/") and second.known[0].endswith("(25 configurations)")
    cold, warm = (event for event in run.events if isinstance(event, ShapeFinished))
    assert cold.start is None and warm.start is not None
    assert warm.start.ended_early and warm.start.screened < cold.record.trials == 25
    assert warm.start.share is not None and warm.start.share > 0.98
    screened = [
        event.trial
        for event in run.events
        if isinstance(event, TrialFinished) and event.shape["M"] == 8192 and event.trial.phase == "screen"
    ]
    assert screened[1].config == {"ROWS": 4, "TILES": 2} and screened[1].reason == "among the best known before"
    assert warm.record.config == cold.record.config
    assert "starts from M=4096" in (event_text(second) or "")
    assert f"ended after {warm.start.screened} of 25 configurations" in (event_text(warm) or "")


@pytest.mark.parametrize(("seconds_a_screen", "proposed"), [(0.1, LEAST_PROPOSED), (2.0, 2)])
def test_a_search_without_time_proposes_what_others_teach(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds_a_screen: float, proposed: int
) -> None:
    """Where starting took all the time; where each of them takes long, there are fewer."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    class Slow(fakes.FakeEvaluator):  # type: ignore[name-defined,misc]
        def screen(
            self, config: Configuration, best_ns: float | None, meanwhile: Callable[[], None] = lambda: None
        ) -> Screened:
            now[0] += seconds_a_screen
            return super().screen(config, best_ns)

    first = replace(fakes.job(trials=25, strategy="surrogate"), shapes=({"M": 4096, "N": 512},))
    folder = tune_locally(first, emit=lambda _: None, folder=tmp_path, evaluator=lambda *_: Slow(fakes.bowl)).folder
    known = read_logs(str(folder), "softmax_kernel")
    job = replace(fakes.job(trials=None, seconds=1e-6, strategy="surrogate"), shapes=({"M": 8192, "N": 512},))
    result = tune_locally(
        job, emit=lambda _: None, folder=tmp_path / "next", evaluator=lambda *_: Slow(fakes.bowl), known=known
    )
    assert result.records[0].trials == 1 + proposed
    assert result.records[0].config == {"ROWS": 4, "TILES": 2}


def test_shapes_that_differ_are_searched_to_the_end(fakes: ModuleType, tmp_path: Path) -> None:
    """Where times are not ranked as the first shape predicts, the second search does not end early, and finds its own
    best."""
    times = {True: fakes.bowl, False: lambda config: 3000.0 - fakes.bowl(config) - 9 * int(config["ROWS"])}
    events: list[TuneEvent] = []
    run_job(
        known_job(fakes),
        emit=events.append,
        workdir=tmp_path,
        evaluator=lambda problem, device, default, seed: fakes.FakeEvaluator(times[problem.dims["M"] == 4096]),
    )
    warm = [event for event in events if isinstance(event, ShapeFinished)][1]
    assert warm.start is not None and not warm.start.ended_early and warm.record.trials == 25
    assert warm.record.config == {"ROWS": 16, "TILES": 16}


def test_a_started_search_goes_on_from_its_trials(fakes: ModuleType, tmp_path: Path) -> None:
    """It starts from the same searches again, what was measured is not measured again, and it ends as early."""
    whole = fakes.Run(known_job(fakes), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    reached = sum(1 for event in whole.finished if event[0]["M"] == 4096) + 4
    cut = fakes.Run(known_job(fakes), fakes.FakeEvaluator(fakes.bowl), tmp_path, cancel_after=reached)
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    rest = fakes.Run(known_job(fakes), evaluator, tmp_path, finished=cut.finished)
    started = [[e.known for e in run.events if isinstance(e, ShapeStarted)] for run in (whole, rest)]
    assert started[0] == started[1] and len(started[0][1]) == 1
    before = {config_key(trial.config) for trial in cut.trials[reached - 4 :]}
    assert len(before) == 4 and not before & set(evaluator.screened)
    assert len(evaluator.screened) + 4 == rest.records[1].trials < 25
    assert rest.records[1].config == {"ROWS": 4, "TILES": 2}


def test_strategies_that_cannot_start_from_others_do_not(fakes: ModuleType, tmp_path: Path) -> None:
    run = fakes.Run(replace(known_job(fakes), strategy="random"), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert all(event.known == () for event in run.events if isinstance(event, ShapeStarted))
    assert [record.trials for record in run.records] == [25, 25]


class Expecting:
    """What an evaluator of these tests heard of the next problem, and in which thread, and after which races."""

    def __init__(self, fakes: ModuleType, exclusive: bool = False) -> None:
        heard = self.heard = []  # type: list[tuple[dict[str, int], dict[str, object], int]]

        class Evaluator(fakes.FakeEvaluator):  # type: ignore[name-defined,misc]
            def prepare_next_problem(self, problem: Problem, default: Configuration) -> None:
                heard.append((dict(problem.dims), dict(default), threading.get_ident()))

        self.evaluator = Evaluator(fakes.bowl)
        self.evaluator.exclusive = exclusive


def test_the_next_problem_is_expected_before_this_one_is_done(fakes: ModuleType, tmp_path: Path) -> None:
    expecting = Expecting(fakes)
    run = fakes.Run(two_shapes(fakes), expecting.evaluator, tmp_path)
    ((dims, default, thread),) = expecting.heard
    assert dims == {"M": 2048, "N": 512} and thread != threading.get_ident()
    second = next(t for shape, _, t in run.finished if shape["M"] == 2048)
    assert default == dict(second.config)
    assert [record.shape_key for record in run.records] == ["M=4096,N=512", "M=2048,N=512"]


def test_nothing_is_expected_where_it_would_disturb_or_is_done(fakes: ModuleType, tmp_path: Path) -> None:
    exclusive = Expecting(fakes, exclusive=True)
    done = fakes.Run(two_shapes(fakes), exclusive.evaluator, tmp_path).finished
    assert not exclusive.heard
    resumed = Expecting(fakes)
    of_second = [item for item in done if item[0]["M"] == 2048]
    fakes.Run(two_shapes(fakes), resumed.evaluator, tmp_path, finished=of_second)
    assert not resumed.heard


def test_what_has_no_room_is_planned_and_not_expected(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first needs 130 MiB.
    monkeypatch.setattr("deuteron.tuner.possible.physical_memory_bytes", lambda: 200 << 20)
    expecting = Expecting(fakes)
    assert len(fakes.Run(two_shapes(fakes), expecting.evaluator, tmp_path).records) == 2
    assert not expecting.heard


def test_a_problem_that_cannot_be_planned_fails_at_its_turn(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the one before it has its record; and not as an error of another thread."""
    searched = Problem.searched

    def unplannable(self: Problem, *args: Any) -> Any:
        if self.dims["M"] == 2048:
            raise WorkloadError("no plan for this shape")
        return searched(self, *args)

    monkeypatch.setattr(Problem, "searched", unplannable)
    events: list[TuneEvent] = []
    evaluator = Expecting(fakes).evaluator
    with pytest.raises(ShapesFailed, match="1 of 2 shapes have no result:\nM=2048,N=512 f32: no plan"):
        run_job(two_shapes(fakes), emit=events.append, workdir=tmp_path, evaluator=lambda *_: evaluator)
    assert [e.record.shape_key for e in events if isinstance(e, ShapeFinished)] == ["M=4096,N=512"]
    assert isinstance(events[-1], JobFailed)
    assert not any(thread.name.startswith("plan") for thread in threading.enumerate())


def three_shapes(fakes: ModuleType) -> JobSpec:
    return replace(two_shapes(fakes), shapes=tuple({"M": m, "N": 512} for m in (4096, 1024, 2048)))


@pytest.mark.parametrize("failing", [(1024,), (4096, 1024, 2048)])
def test_a_shape_that_cannot_work_does_not_end_the_others(
    fakes: ModuleType, tmp_path: Path, failing: tuple[int, ...]
) -> None:
    """They are tuned and in the bundle, at the end the job says what failed, and another run goes on from there."""
    screened: list[int] = []

    def evaluator(problem: Problem, *rest: object) -> Any:
        class Counting(fakes.FakeEvaluator):  # type: ignore[name-defined,misc]
            def screen(self, *arguments: Any) -> Screened:
                screened.append(problem.dims["M"])
                return super().screen(*arguments)

        return Counting(lambda config: "crashed" if problem.dims["M"] in failing else fakes.bowl(config))

    for _ in range(2):
        events: list[TuneEvent] = []
        screened.clear()
        with pytest.raises(ShapesFailed, match=f"{len(failing)} of 3 shapes have no result") as failed:
            tune_locally(three_shapes(fakes), emit=events.append, folder=tmp_path, evaluator=evaluator)
        assert "M=1024,N=512 f32: none of 6 configurations" in failed.value.message
        assert isinstance(events[-1], JobFailed) and events[-1].error == failed.value.message
        works = [m for m in (4096, 2048) if m not in failing]
        assert [record.shape["M"] for record in failed.value.records] == works
        stored = read_bundle(tmp_path / "records.bundle").records() if works else []
        assert sorted(record.shape["M"] for record in stored) == sorted(works)
        assert (tmp_path / "search.hatchet").exists()
    assert not screened


def test_what_no_constraint_allows_is_refused_before_anything_is_measured(fakes: ModuleType, tmp_path: Path) -> None:
    spec = three_shapes(fakes)
    spaces = {kind: replace(space, constraints=("M > 1024",)) for kind, space in spec.workload.spaces.items()}
    spec = replace(spec, workload=replace(spec.workload, spaces=spaces))
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    with pytest.raises(JobError, match=r"M=1024,N=512 f32: [^\0]*M > 1024"):
        fakes.Run(spec, evaluator, tmp_path)
    with pytest.raises(SpaceError, match="M > 1024"):
        fakes.Run(replace(spec, shapes=spec.shapes[1:2]), evaluator, tmp_path)
    assert not evaluator.screened


def test_of_very_many_failures_the_first_are_named(fakes: ModuleType, tmp_path: Path) -> None:
    spec = replace(two_shapes(fakes), shapes=tuple({"M": m, "N": 512} for m in range(1, 21)))
    with pytest.raises(ShapesFailed, match="20 of 20 shapes") as failed:
        fakes.Run(spec, fakes.FakeEvaluator(lambda config: "crashed"), tmp_path)
    assert failed.value.message.count("none of") == 8 and failed.value.message.endswith("and 12 more")
