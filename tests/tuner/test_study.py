"""Whole searches with an evaluator that makes times up: everything except compiling and measuring is real."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from deuteron.profiler import Profile
from deuteron.tuner.errors import JobError, SpaceError, WorkloadError
from deuteron.tuner.evaluate.messages import Compiled, Raced, Screened
from deuteron.tuner.events import (
    JobCancelled,
    JobFailed,
    JobFinished,
    JobStarted,
    ShapeFinished,
    ShapeStarted,
    TrialFinished,
    TuneEvent,
    event_from_json,
)
from deuteron.tuner.job import Budget, JobSpec
from deuteron.tuner.measure.statistics import Interval, median_interval, paired_ratio
from deuteron.tuner.measure.stopping import is_settled, next_look
from deuteron.tuner.space import Configuration, config_key
from deuteron.tuner.study import run_job
from deuteron.tuner.trial import Trial
from deuteron.tuner.workloads import builtin_workload

LOOKS = list(itertools.accumulate(range(40), lambda rounds, _: next_look(rounds)))


class FakeEvaluator:
    """``time_of(config)`` in ns, or a status text for a failure, or None for a compile error."""

    exclusive = True
    workers = 2

    def __init__(
        self,
        time_of: Callable[[Configuration], float | str | None],
        *,
        noise: float = 0.003,
        identity: Callable[[Configuration], str] = config_key,
        crash_in_race: Callable[[Configuration], bool] = lambda config: False,
    ) -> None:
        self.time_of, self.noise, self.identity = time_of, noise, identity
        self.crash_in_race = crash_in_race
        self.rng = random.Random(5)
        self.screened: list[str] = []
        self.races: list[tuple[bool, list[str]]] = []
        self.closed = False

    def sample(self, config: Configuration) -> float:
        value = self.time_of(config)
        assert isinstance(value, float | int)
        return value * (1 + self.noise * self.rng.gauss(0, 1))

    def submit(self, config: Configuration) -> None: ...

    def settle(self) -> None: ...

    def compiled(self, config: Configuration) -> Compiled:
        if self.time_of(config) is None:
            return Compiled("compile_error", "line 3: no")
        return Compiled("ok", None, self.identity(config), {"registers": 32.0}, 0.01)

    def screen(self, config: Configuration, best_ns: float | None) -> Screened:
        self.screened.append(config_key(config))
        value = self.time_of(config)
        if isinstance(value, str):
            return Screened(value, "it went wrong")
        samples = [self.sample(config) for _ in range(7)]
        return Screened("ok", time_ns=median_interval(samples), reference="a fake", check_seconds=0.1)

    def race(
        self,
        configs: Sequence[Configuration],
        *,
        rounds: int,
        seconds: float,
        seed: int,
        fresh: bool,
    ) -> Raced:
        self.races.append((fresh, [config_key(c) for c in configs]))
        if any(self.crash_in_race(config) for config in configs):
            return Raced("crashed", "the child process was ended by SIGSEGV")
        times: list[list[float]] = [[] for _ in configs]
        for done in range(1, min(rounds, 2000) + 1):  # as if time ended it
            for config, values in zip(configs, times, strict=True):
                values.append(self.sample(config))
            if fresh and done in LOOKS and is_settled(times):
                break
        self.last = Raced("ok", None, times, [None] * len(configs), 1500, "a fake")
        return self.last

    def close(self) -> None:
        self.closed = True


def job(trials: int | None = 30, strategy: str = "random", seconds: float | None = None, **more: object) -> JobSpec:
    return JobSpec(
        workload=builtin_workload("softmax"),
        shapes=({"M": 4096, "N": 512},),
        dtypes=("f32",),
        budget=Budget(trials, seconds),
        strategy=strategy,
        **more,  # type: ignore[arg-type]
    )


def bowl(config: Configuration) -> float:
    """The default ROWS=1, TILES=1 takes 1300 ns, the best ROWS=4, TILES=2 takes 1000."""
    rows, tiles = int(config["ROWS"]), int(config["TILES"])
    return 1000.0 + 100 * abs(rows.bit_length() - 3) + 100 * abs(tiles.bit_length() - 2)


class Run:
    def __init__(
        self,
        spec: JobSpec,
        evaluator: FakeEvaluator,
        workdir: Path,
        finished: Sequence[tuple[Mapping[str, int], str, Trial]] = (),
        cancel_after: int | None = None,
    ) -> None:
        self.events: list[TuneEvent] = []
        self.records = run_job(
            spec,
            emit=self.events.append,
            finished=finished,
            cancelled=lambda: cancel_after is not None and len(self.trials) >= cancel_after,
            workdir=workdir,
            evaluator=lambda problem, device, default, seed: evaluator,
        )

    @property
    def finished(self) -> list[tuple[Mapping[str, int], str, Trial]]:
        return [(e.shape, e.dtype, e.trial) for e in self.events if isinstance(e, TrialFinished)]

    @property
    def trials(self) -> list[Trial]:
        return [trial for _, _, trial in self.finished]


def test_finds_the_best_and_says_how_sure(tmp_path: Path) -> None:
    evaluator = FakeEvaluator(bowl)
    run = Run(job(), evaluator, tmp_path)
    (record,) = run.records
    assert record.config == {"ROWS": 4, "TILES": 2}
    assert record.default_config == {"ROWS": 1, "TILES": 1}
    assert record.verdict == "FASTER" and record.checked
    assert record.speedup.low <= 1.3 <= record.speedup.high
    assert record.challenger == record.speedup
    assert record.trials == 25  # the whole space
    assert evaluator.closed
    assert [type(e) for e in run.events[:2]] == [JobStarted, ShapeStarted]
    assert [type(e) for e in run.events[-2:]] == [ShapeFinished, JobFinished]
    assert run.trials[0].config == record.default_config  # the default is measured first
    phases = [trial.phase for trial in run.trials]
    assert phases == sorted(phases, key=["screen", "race", "final"].index)
    fresh, finalists = evaluator.races[-1]
    assert fresh and len(finalists) == 3
    assert [e for e in run.events if isinstance(e, TrialFinished)][-1].incumbent in {
        trial.id for trial in run.trials if dict(trial.config) == record.config
    }


@pytest.mark.parametrize("strategy", ["exhaustive", "random"])
def test_every_strategy_drives_a_job(tmp_path: Path, strategy: str) -> None:
    run = Run(job(trials=None, strategy=strategy), FakeEvaluator(bowl), tmp_path)
    assert run.records[0].config == {"ROWS": 4, "TILES": 2}


def test_nothing_beats_the_default(tmp_path: Path) -> None:
    def flat(config: Configuration) -> float:
        return 1000.0

    (record,) = Run(job(), FakeEvaluator(flat), tmp_path).records
    assert record.config == record.default_config == {"ROWS": 1, "TILES": 1}
    assert (record.speedup.median, record.verdict) == (1.0, "SAME")
    assert record.challenger is not None and 0.99 < record.challenger.low < record.challenger.high < 1.01


def test_a_gain_below_the_margin_keeps_the_default(tmp_path: Path) -> None:
    """0.5 % faster is real here, and known to be, but not worth another configuration."""

    def slightly(config: Configuration) -> float:
        return 995.0 if config["ROWS"] == 4 else 1000.0

    (record,) = Run(job(), FakeEvaluator(slightly, noise=0.001), tmp_path).records
    assert record.config == record.default_config and record.verdict == "SAME"


def test_final_takes_more_rounds_where_times_vary_more(tmp_path: Path) -> None:
    rounds = []
    for noise in (0.001, 0.03):
        run = Run(job(), FakeEvaluator(lambda config: 1000.0, noise=noise), tmp_path)
        assert run.records[0].verdict == "SAME"
        rounds.append(run.trials[-1].metrics["ratio_pairs"])
    assert rounds[0] == next_look(0) and rounds[1] > 20 * rounds[0]


def test_final_intervals_hold_for_all_finalists_together(tmp_path: Path) -> None:
    evaluator = FakeEvaluator(lambda config: 1000.0, noise=0.02)
    run = Run(job(), evaluator, tmp_path)
    default, *challengers = evaluator.last.times
    assert len(challengers) == 2
    final = [trial for trial in run.trials if trial.phase == "final"]
    for trial, times in zip(final[1:], challengers, strict=True):
        ratio = paired_ratio(times, default, 0.975)
        assert (trial.metrics["ratio_low"], trial.metrics["ratio_high"]) == (ratio.low, ratio.high)
        assert ratio != paired_ratio(times, default)


def test_who_is_faster_in_one_process_only_is_not_stored(tmp_path: Path) -> None:
    """Code that happens to lie well in a process is 1.5 % faster there, and in no other."""
    best = {"ROWS": 4, "TILES": 2}

    class Placed(FakeEvaluator):
        def race(self, *args: Any, **kwargs: Any) -> Raced:
            self.fresh = sum(fresh for fresh, _ in self.races) + kwargs["fresh"]
            return super().race(*args, **kwargs)

        def sample(self, config: Configuration) -> float:
            placed = dict(config) == best and getattr(self, "fresh", 0) <= lucky
            return super().sample(config) * (0.985 if placed else 1.0)

    for lucky, said in ((0, "SAME"), (1, "SAME"), (2, "FASTER")):
        evaluator = Placed(lambda config: 1000.0, noise=0.005)
        (record,) = Run(job(), evaluator, tmp_path).records
        assert record.verdict == said
        assert sum(fresh for fresh, _ in evaluator.races) == (1 if lucky == 0 else 2)


def test_who_drops_out_of_a_race_is_compared_in_its_own_rounds(tmp_path: Path) -> None:
    """The machine takes twice as long after each stage: ratios of times of different stages would be nonsense."""

    class Slowing(FakeEvaluator):
        def race(self, *args: Any, **kwargs: Any) -> Raced:
            raced, slower = super().race(*args, **kwargs), 2.0 ** len(self.races)
            return replace(raced, times=[[slower * time for time in times] for times in raced.times])

    def three_groups(config: Configuration) -> float:
        return 1000.0 if config["ROWS"] == 4 else 1100.0

    evaluator = Slowing(three_groups)
    run = Run(job(trials=12), evaluator, tmp_path)
    assert len(evaluator.races) >= 3  # two stages at least, and the final
    for trial in run.trials:
        if trial.phase == "race":
            assert trial.metrics["ratio"] == pytest.approx(three_groups(trial.config) / 1100, rel=0.01)


def test_bad_luck_while_screening_does_not_exclude_the_best(tmp_path: Path) -> None:
    """A neighbour made most of its samples slow, but not all: it may be the best, and the race finds out."""
    best = {"ROWS": 4, "TILES": 2}

    class Unlucky(FakeEvaluator):
        def screen(self, config: Configuration, best_ns: float | None) -> Screened:
            screened = super().screen(config, best_ns)
            return replace(screened, time_ns=Interval(1500, 1000, 9000, 30)) if dict(config) == best else screened

    (record,) = Run(job(), Unlucky(bowl), tmp_path).records
    assert record.config == best


def test_lucky_noise_does_not_replace_the_default(tmp_path: Path) -> None:
    """With 20 % noise some configuration always looks faster while screening."""

    def flat(config: Configuration) -> float:
        return 1000.0

    kept = 0
    for seed in range(20):
        evaluator = FakeEvaluator(flat, noise=0.2)
        evaluator.rng = random.Random(seed)
        (record,) = Run(job(), evaluator, tmp_path).records
        kept += record.config == record.default_config
    assert kept == 20


def test_budget_counts_the_default(tmp_path: Path) -> None:
    run = Run(job(trials=7), FakeEvaluator(bowl), tmp_path)
    assert sum(trial.phase == "screen" for trial in run.trials) == 7
    assert run.records[0].trials == 7
    only_default = Run(job(trials=1), FakeEvaluator(bowl), tmp_path)
    assert only_default.records[0].config == {"ROWS": 1, "TILES": 1}


def test_failures_are_labels_not_the_end(tmp_path: Path) -> None:
    def time_of(config: Configuration) -> float | str | None:
        if config["ROWS"] == 2:
            return None
        if config["ROWS"] == 8:
            return "wrong_result" if config["TILES"] == 1 else "crashed"
        return bowl(config)

    run = Run(job(), FakeEvaluator(time_of), tmp_path)
    statuses = {t.status for t in run.trials}
    assert statuses == {"ok", "compile_error", "wrong_result", "crashed"}
    assert run.records[0].config == {"ROWS": 4, "TILES": 2}
    failed = next(t for t in run.trials if t.status == "compile_error")
    assert failed.error == "line 3: no" and failed.time_ns is None


def test_default_that_does_not_work_is_replaced_as_baseline(tmp_path: Path) -> None:
    def time_of(config: Configuration) -> float | None:
        return None if config["ROWS"] == 1 else bowl(config)

    (record,) = Run(job(), FakeEvaluator(time_of), tmp_path).records
    assert record.config == {"ROWS": 4, "TILES": 2}
    assert record.default_config["ROWS"] != 1


def test_nothing_works_is_an_error_with_the_commonest_reason(tmp_path: Path) -> None:
    events: list[TuneEvent] = []
    with pytest.raises(JobError, match="none of 25 .* 25 x crashed, such as: it went wrong"):
        run_job(
            job(),
            emit=events.append,
            workdir=tmp_path,
            evaluator=lambda *_, **__: FakeEvaluator(lambda config: "crashed"),
        )
    assert isinstance(events[-1], JobFailed) and "25 x crashed" in events[-1].error


def test_identical_code_is_measured_once(tmp_path: Path) -> None:
    evaluator = FakeEvaluator(bowl, identity=lambda config: str(config["ROWS"]))
    run = Run(job(), evaluator, tmp_path)
    assert len(evaluator.screened) == 5
    duplicates = [t for t in run.trials if "duplicate_of" in t.metrics]
    assert len(duplicates) == 20
    for trial in duplicates:
        twin = run.trials[int(trial.metrics["duplicate_of"])]
        assert twin.config["ROWS"] == trial.config["ROWS"] and twin.time_ns == trial.time_ns


def test_crash_in_the_race_drops_the_culprit_only(tmp_path: Path) -> None:
    best = {"ROWS": 4, "TILES": 2}
    evaluator = FakeEvaluator(bowl, crash_in_race=lambda config: dict(config) == best)
    (record,) = Run(job(), evaluator, tmp_path).records
    assert record.config != best and bowl(record.config) == 1100.0


def test_same_seed_same_trials(tmp_path: Path) -> None:
    a = Run(job(trials=12, seed=4), FakeEvaluator(bowl), tmp_path)
    b = Run(job(trials=12, seed=4), FakeEvaluator(bowl), tmp_path)
    assert [t.config for t in a.trials] == [t.config for t in b.trials]


@pytest.mark.parametrize("stop", [1, 5, 24, 25, 27, 33, 36])
def test_cancelled_job_resumes_without_measuring_again(tmp_path: Path, stop: int) -> None:
    whole = Run(job(), FakeEvaluator(bowl), tmp_path)
    first = Run(job(), FakeEvaluator(bowl), tmp_path, cancel_after=stop)
    if not first.records:
        assert isinstance(first.events[-1], JobCancelled)
    evaluator = FakeEvaluator(bowl)
    second = Run(job(), evaluator, tmp_path, finished=first.finished)
    before = {config_key(t.config) for t in first.trials if t.phase == "screen"}
    assert not before & set(evaluator.screened)
    assert len(before) + len(evaluator.screened) == 25
    assert second.records[0].config == whole.records[0].config
    assert second.records[0].trials == 25


def test_finished_job_is_rebuilt_from_its_trials(tmp_path: Path) -> None:
    first = Run(job(), FakeEvaluator(bowl), tmp_path)
    again = Run(job(), FakeEvaluator(lambda config: "crashed"), tmp_path, finished=first.finished)
    assert again.trials == []
    assert again.records == first.records


def test_half_reported_final_is_run_again(tmp_path: Path) -> None:
    first = Run(job(), FakeEvaluator(bowl), tmp_path)
    cut = first.finished[:-1]
    evaluator = FakeEvaluator(bowl)
    second = Run(job(), evaluator, tmp_path, finished=cut)
    assert evaluator.screened == [] and [fresh for fresh, _ in evaluator.races] == [True, True]
    assert second.records[0].config == first.records[0].config


def test_several_shapes_and_dtypes_share_the_time(tmp_path: Path) -> None:
    spec = JobSpec(
        workload=builtin_workload("softmax"),
        shapes=({"M": 128, "N": 256}, {"M": 64, "N": 32}),
        dtypes=("f32", "bf16"),
        budget=Budget(5, 60.0),
    )
    run = Run(spec, FakeEvaluator(bowl), tmp_path)
    assert [(r.shape_key, r.dtype) for r in run.records] == [
        ("M=128,N=256", "f32"),
        ("M=128,N=256", "bf16"),
        ("M=64,N=32", "f32"),
        ("M=64,N=32", "bf16"),
    ]
    started = [e for e in run.events if isinstance(e, ShapeStarted)]
    assert started[0].bytes == 2 * 128 * 256 * 4 and started[1].bytes == 2 * 128 * 256 * 2


def test_parameters_that_change_no_code_are_tried_once_and_named(tmp_path: Path) -> None:
    data = builtin_workload("softmax").to_json()
    parameters = {"ROWS": [1, 2, 4], "TILES": [1, 2], "num_stages": [3, 1, 2], "num_warps": [4, 8]}
    data["spaces"] = {"any": {"parameters": parameters, "constraints": ["ROWS * TILES <= M"]}}
    spec = JobSpec.from_json({"workload": {**data, "defaults": {}}, "shapes": [{"M": 64, "N": 32}]})
    evaluator = FakeEvaluator(bowl)
    run = Run(spec, evaluator, tmp_path)
    assert len(evaluator.screened) == len(set(evaluator.screened)) == 6
    assert {(t.config["num_stages"], t.config["num_warps"]) for t in run.trials} == {(3, 4)}
    (started,) = (e for e in run.events if isinstance(e, ShapeStarted))
    assert (started.space_size, started.held) == (6, {"num_stages": 3, "num_warps": 4})
    assert event_from_json(json.loads(json.dumps(started.to_json()))) == started
    old = {name: value for name, value in started.to_json().items() if name != "held"}
    assert event_from_json(old) == replace(started, held={})


def two_shapes(seconds: float | None = None, trials: int | None = 6) -> JobSpec:
    shapes = ({"M": 4096, "N": 512}, {"M": 2048, "N": 512})
    return replace(job(trials=trials, seconds=seconds), shapes=shapes)


def test_trials_of_one_shape_say_nothing_about_another(tmp_path: Path) -> None:
    first = Run(two_shapes(), FakeEvaluator(bowl), tmp_path)
    of_first = [item for item in first.finished if item[0]["M"] == 4096]
    evaluator = FakeEvaluator(bowl)
    second = Run(two_shapes(), evaluator, tmp_path, finished=of_first)
    assert {item[0]["M"] for item in second.finished} == {2048}
    assert len(evaluator.screened) == 6
    assert [(r.shape_key, r.trials) for r in second.records] == [("M=4096,N=512", 6), ("M=2048,N=512", 6)]


def test_time_that_a_shape_used_is_gone_for_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only screening moves, by 5 s each: the second shape has what is left of 100 s, not all of it."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    evaluator = FakeEvaluator(bowl)
    screen = evaluator.screen

    def slow(config: Configuration, best_ns: float | None) -> Screened:
        now[0] += 5.0
        return screen(config, best_ns)

    monkeypatch.setattr(evaluator, "screen", slow)
    run = Run(two_shapes(seconds=100.0, trials=None), evaluator, tmp_path)
    screens = {m: sum(s["M"] == m and t.phase == "screen" for s, _, t in run.finished) for m in (4096, 2048)}
    share = 5.0 * screens[4096] / 50.0  # the part of a shape's time that goes into screening
    assert 0 < share <= 1
    assert abs(5.0 * screens[2048] - share * (100.0 - 5.0 * screens[4096])) <= 7.5


def test_time_budget_ends_screening(tmp_path: Path) -> None:
    run = Run(job(trials=None, seconds=1e-6), FakeEvaluator(bowl), tmp_path)
    assert sum(t.phase == "screen" for t in run.trials) == 1
    assert run.records[0].verdict == "SAME"


def test_events_survive_json(tmp_path: Path) -> None:
    run = Run(job(trials=6), FakeEvaluator(bowl), tmp_path)
    extra: list[TuneEvent] = [JobFailed("broke", "mend it"), JobCancelled()]
    for event in [*run.events, *extra]:
        assert event_from_json(json.loads(json.dumps(event.to_json()))) == event


def test_profile_has_shapes_phases_and_rates(tmp_path: Path) -> None:
    run = Run(job(), FakeEvaluator(bowl), tmp_path)
    profile = Profile.read(tmp_path / "search.hatchet")
    paths = dict(profile.walk())
    best = ("softmax_kernel", "M=4096,N=512 f32", "final", "ROWS=4 TILES=2")
    node = paths[best]
    assert node.metrics["count"] == 1
    assert node.metrics["time (ns)"] == pytest.approx(1000, rel=0.02)
    assert node.metrics["flops"] == 5 * 4096 * 512
    assert node.metrics["bytes"] == 2 * 4096 * 512 * 4
    compile_frame = ("softmax_kernel", "M=4096,N=512 f32", "screen", "ROWS=4 TILES=2", "compile")
    assert paths[compile_frame].metrics["cpu_time (ns)"] == 10_000_000
    finished = run.events[-1]
    assert isinstance(finished, JobFinished) and finished.profile == "search.hatchet"
    shape_file = tmp_path / "search-M=4096,N=512-f32.hatchet"
    assert shape_file.exists() and run.records[0].profile_sha256


def test_job_spec_survives_json_and_checks_itself() -> None:
    spec = job(trials=5, seconds=3.0, seed=9)
    assert JobSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    short = {"workload": {"builtin": "matmul"}, "budget": {"trials": 3, "seconds": None}}
    read = JobSpec.from_json(short)
    assert read.shapes == builtin_workload("matmul").shapes and read.dtypes == ("f32",)
    base = {"workload": {"builtin": "softmax"}, "shapes": [{"M": 1, "N": 1}]}
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


def test_empty_space_of_a_shape_is_reported(tmp_path: Path) -> None:
    data = builtin_workload("vector_add").to_json()
    data["spaces"] = {"any": {"parameters": {"BLOCK_SIZE": [1024]}, "constraints": ["BLOCK_SIZE <= n"]}}
    spec = JobSpec.from_json({"workload": data, "shapes": [{"n": 8}]})
    with pytest.raises(SpaceError, match="'BLOCK_SIZE <= n' strikes out 1 of 1"):
        Run(spec, FakeEvaluator(bowl), tmp_path)


def test_shape_that_cannot_fit_in_memory_is_refused(tmp_path: Path) -> None:
    spec = JobSpec(builtin_workload("vector_add"), ({"n": 1 << 39},), ("f32",))
    with pytest.raises(JobError, match=r"n=549755813888 f32 needs 6144.0 GiB on the device"):
        Run(spec, FakeEvaluator(bowl), tmp_path)
