"""What a search tries, and what it is told of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner.codec import Scalar
from deuteron.tuner.evaluate.messages import Raced, Screened
from deuteron.tuner.events import ShapeFinished, ShapeStarted, TrialFinished, TuneEvent, event_from_json
from deuteron.tuner.job import Budget, JobSpec
from deuteron.tuner.ledger import median_ns
from deuteron.tuner.progress import event_text, trial_text
from deuteron.tuner.space import Configuration, config_key
from deuteron.tuner.strategies import STRATEGIES, Outcome, RandomStrategy
from deuteron.tuner.study import run_job
from deuteron.tuner.trial import Trial
from deuteron.tuner.user_kernel import resolve_workload
from deuteron.tuner.workloads import builtin_workload


@pytest.mark.parametrize("strategy", ["exhaustive", "random", "surrogate"])
def test_every_strategy_drives_a_job(fakes: ModuleType, tmp_path: Path, strategy: str) -> None:
    run = fakes.Run(fakes.job(trials=None, strategy=strategy), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert run.records[0].config == {"ROWS": 4, "TILES": 2}


THIN = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, E: tl.constexpr):
    offsets = tl.program_id(0) * (A * B) + tl.arange(0, A * B)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * (C * D * E), mask=offsets < n)


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, A * B)"],
    "space": {
        "parameters": {"A": CHOICES, "B": CHOICES, "C": CHOICES, "D": CHOICES, "E": CHOICES},
        "constraints": ["A * B * C * D * E == 4096", "A >= B"],
    },
    "defaults": {"any": {"A": 64, "B": 64, "C": 1, "D": 1, "E": 1}},
}
""".replace("CHOICES", str([*range(64, 0, -1)]))


@pytest.mark.parametrize("strategy", ["random", "surrogate"])
def test_a_job_searches_a_space_that_draws_do_not_hit_from_its_default(
    fakes: ModuleType, tmp_path: Path, strategy: str
) -> None:
    """670 of 64^5 points are valid. The default is the workload's; its parameters alone lead to no valid point."""
    (tmp_path / "thin.py").write_text(THIN)
    workload = resolve_workload(f"{tmp_path / 'thin.py'}:scale")
    spec = JobSpec(workload, ({"n": 4096},), ("f32",), budget=Budget(16), strategy=strategy)
    run = fakes.Run(spec, fakes.FakeEvaluator(lambda config: 1000.0 + config["C"] + config["D"]), tmp_path)
    tried = [trial.config for trial in run.trials if trial.phase == "screen"]
    assert tried[0] == {"A": 64, "B": 64, "C": 1, "D": 1, "E": 1}
    assert len({config_key(config) for config in tried}) == len(tried) == 16
    assert all(math.prod(map(int, config.values())) == 4096 and config["A"] >= config["B"] for config in tried)


def test_screened_trials_say_why_they_were_tried(fakes: ModuleType, tmp_path: Path) -> None:
    run = fakes.Run(fakes.job(strategy="surrogate"), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    screened = [trial for trial in run.trials if trial.phase == "screen"]
    assert screened[0].reason == "the default"
    assert {trial.reason for trial in screened[1:8]} == {"spread-out start"}
    assert any("better (p=" in (trial.reason or "") for trial in screened[8:])
    assert all(trial.reason is None for trial in run.trials if trial.phase != "screen")
    without = fakes.Run(fakes.job(strategy="random"), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert {trial.reason for trial in without.trials} == {"the default", None}


def test_the_default_strategy_is_the_surrogate() -> None:
    spec = JobSpec(builtin_workload("softmax"), ({"M": 64, "N": 64},), ("f32",))
    assert spec.strategy == "surrogate"


def test_budget_counts_the_default(fakes: ModuleType, tmp_path: Path) -> None:
    run = fakes.Run(fakes.job(trials=7), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert sum(trial.phase == "screen" for trial in run.trials) == 7
    assert run.records[0].trials == 7
    only_default = fakes.Run(fakes.job(trials=1), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert only_default.records[0].config == {"ROWS": 1, "TILES": 1}


def test_a_long_compilation_keeps_nobody_waiting(fakes: ModuleType, tmp_path: Path) -> None:
    """On a GPU what is compiled is measured; but the default is first, whatever it takes."""

    class Slow(fakes.FakeEvaluator):  # type: ignore[name-defined, misc]
        exclusive, workers = False, 4

        def next_compiled(self, configs: Sequence[Configuration]) -> int:
            ready = [place for place, config in enumerate(configs) if config["TILES"] != 1]
            return ready[0] if ready else 0

    evaluator = Slow(fakes.bowl)
    run = fakes.Run(fakes.job(trials=12), evaluator, tmp_path)
    screened = [trial.config["TILES"] for trial in run.trials if trial.phase == "screen"]
    assert screened[0] == 1 and len(screened) == 12
    waiting = screened[1:]
    assert 1 in waiting and waiting.index(1) > 0
    assert waiting == [*(t for t in waiting if t != 1), *(t for t in waiting if t == 1)]


@pytest.mark.parametrize("exclusive", [False, True])
def test_proposals_are_made_while_the_device_is_at_work(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exclusive: bool
) -> None:
    """On a GPU, and no more than the budget has; on a CPU none of them disturbs what is timed."""
    at_work = [False]
    asked: list[bool] = []

    class Asking(RandomStrategy):
        def ask(self) -> dict[str, Scalar] | None:
            asked.append(at_work[0])
            return super().ask()

    class Busy(fakes.FakeEvaluator):  # type: ignore[name-defined, misc]
        workers, submitted = 1, 0

        def submit(self, config: Configuration) -> None:
            self.submitted += 1

        def screen(
            self, config: Configuration, best_ns: float | None, meanwhile: Callable[[], None] = lambda: None
        ) -> Screened:
            at_work[0] = True
            if not exclusive:
                meanwhile()
                assert self.submitted - len(self.screened) <= 2, "with one process that compiles"
            at_work[0] = False
            return super().screen(config, best_ns)

    monkeypatch.setitem(STRATEGIES, "random", Asking)
    evaluator = Busy(fakes.bowl)
    evaluator.exclusive = exclusive
    run = fakes.Run(fakes.job(trials=12), evaluator, tmp_path)
    assert sum(trial.phase == "screen" for trial in run.trials) == 12
    assert any(asked) != exclusive
    if not exclusive:
        assert asked.count(False) <= 2, "before the first measurement, and where one repeats the default"


class Contented(RandomStrategy):
    """Sees nothing more to be won after six outcomes."""

    told = 0

    def tell(self, config: Configuration, outcome: Outcome) -> None:
        super().tell(config, outcome)
        self.told += 1

    def settled(self) -> str | None:
        return "six are enough" if self.told >= 6 else None


def test_a_settled_strategy_ends_a_shape_where_the_budget_says_so(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STRATEGIES, "random", Contented)
    for settle, expected, why in ((True, range(6, 11), "six are enough"), (False, range(20, 21), None)):
        spec = replace(fakes.job(), budget=Budget(20, settle=settle))
        run = fakes.Run(spec, fakes.FakeEvaluator(fakes.bowl), tmp_path)
        assert run.records[0].trials in expected  # some were under way when it said so
        (end,) = [event for event in run.events if isinstance(event, ShapeFinished)]
        assert end.settled == why
        assert (f"ended after {run.records[0].trials} trials: six are enough" in str(event_text(end))) == settle


def test_the_best_so_far_is_that_of_the_last_phase(fakes: ModuleType, tmp_path: Path) -> None:
    """By median while screening; of a race, and then of a final, by the ratio to the default."""
    run = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    trials = {trial.id: trial for trial in run.trials}
    seen: list[Trial] = []
    for event in run.events:
        if isinstance(event, TrialFinished):
            seen.append(event.trial)
            last = [trial for trial in seen if trial.phase == event.trial.phase]
            best = min(last, key=median_ns if event.trial.phase == "screen" else lambda t: t.metrics["ratio"])
            assert event.incumbent is not None and trials[event.incumbent] == best, f"{event.trial.phase} {len(last)}"
    assert {trial.phase for trial in seen} == {"screen", "race", "final"}


def test_trials_of_races_tell_what_screening_knew_of_the_code(fakes: ModuleType, tmp_path: Path) -> None:
    run = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    screened = {config_key(trial.config): trial for trial in run.trials if trial.phase == "screen"}
    for trial in run.trials:
        known = screened[config_key(trial.config)].metrics
        assert known["registers"] == trial.metrics["registers"] == 32.0
        assert {name for name in known if not name.endswith("_s")} <= trial.metrics.keys()


def test_identical_code_is_measured_once(fakes: ModuleType, tmp_path: Path) -> None:
    evaluator = fakes.FakeEvaluator(fakes.bowl, identity=lambda config: str(config["ROWS"]))
    run = fakes.Run(fakes.job(), evaluator, tmp_path)
    assert len(evaluator.screened) == 5
    duplicates = [t for t in run.trials if "duplicate_of" in t.metrics]
    assert len(duplicates) == 20
    for trial in duplicates:
        twin = run.trials[int(trial.metrics["duplicate_of"])]
        assert twin.config["ROWS"] == trial.config["ROWS"] and twin.time_ns == trial.time_ns


def test_same_seed_same_trials(fakes: ModuleType, tmp_path: Path) -> None:
    a = fakes.Run(fakes.job(trials=12, seed=4), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    b = fakes.Run(fakes.job(trials=12, seed=4), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert [t.config for t in a.trials] == [t.config for t in b.trials]


def test_parameters_that_change_no_code_are_tried_once_and_named(fakes: ModuleType, tmp_path: Path) -> None:
    data = builtin_workload("softmax").to_json()
    parameters = {"ROWS": [1, 2, 4], "TILES": [1, 2], "num_stages": [3, 1, 2], "num_warps": [4, 8]}
    data["spaces"] = {"any": {"parameters": parameters, "constraints": ["ROWS * TILES <= M"]}}
    spec = JobSpec.from_json({"workload": {**data, "defaults": {}}, "shapes": [{"M": 64, "N": 32}]})
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    run = fakes.Run(spec, evaluator, tmp_path)
    assert len(evaluator.screened) == len(set(evaluator.screened)) == 6
    assert {(t.config["num_stages"], t.config["num_warps"]) for t in run.trials} == {(3, 4)}
    (started,) = (e for e in run.events if isinstance(e, ShapeStarted))
    assert (started.space_size, started.held) == (6, {"num_stages": 3, "num_warps": 4})
    assert event_from_json(json.loads(json.dumps(started.to_json()))) == started
    old = {name: value for name, value in started.to_json().items() if name != "held"}
    assert event_from_json(old) == replace(started, held={})


def test_trials_and_strategies_get_measurements(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time with its protocol and the facts of the code; twins, which are not measured, have those of the first."""
    told: list[Outcome] = []
    tell = RandomStrategy.tell

    def listen(self: RandomStrategy, config: Configuration, outcome: Outcome) -> None:
        told.append(outcome)
        tell(self, config, outcome)

    monkeypatch.setattr(RandomStrategy, "tell", listen)
    evaluator = fakes.FakeEvaluator(
        lambda config: "crashed" if config["ROWS"] == 16 else fakes.bowl(config),
        identity=lambda config: str(config["ROWS"]),
    )
    run = fakes.Run(fakes.job(trials=None), evaluator, tmp_path)
    cores = get_device("cpu").properties.sm_count or 1
    for trial in run.trials:
        found = trial.measurement
        assert (found is None) == (trial.status != "ok")
        if found is not None:
            assert found.time_ns == trial.time_ns and found.code == fakes.CODE
            assert found.protocol == (fakes.FIRST_LOOK if trial.phase == "screen" else fakes.ROUNDS)
            assert found.sm_mhz == (None if trial.phase == "screen" else 1500)
            assert found.waves == 3 / cores
    screened = [trial for trial in run.trials if trial.phase == "screen"]
    assert any("duplicate_of" in trial.metrics for trial in screened if trial.status == "ok")
    assert [outcome.measurement for outcome in told] == [trial.measurement for trial in screened]


def test_times_in_graphs_are_those_of_short_candidates(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default may be too long for a graph, and what is tuned short enough."""
    race = fakes.FakeEvaluator.race

    def with_replays(self: object, configs: list[Configuration], **how: object) -> Raced:
        replays = [[] if config == {"ROWS": 1, "TILES": 1} else [900.0] * 30 for config in configs]
        return replace(race(self, configs, **how), replays=replays if how["fresh"] else [])

    monkeypatch.setattr(fakes.FakeEvaluator, "race", with_replays)
    run = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    default, *challengers = [trial.measurement for trial in run.trials if trial.phase == "final"]
    assert default.replay_ns is None and challengers
    assert all(found.replay_ns is not None and found.replay_ns.median == 900.0 for found in challengers)


def test_progress_says_what_bounds_the_best(fakes: ModuleType, tmp_path: Path) -> None:
    run = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    trial = next(trial for trial in run.trials if trial.status == "ok")
    assert trial.measurement is not None
    tail = replace(trial.measurement, waves=1.5, tail=0.25, bound="tail")
    assert "(1.50 waves leave 25% of the device's time idle)" in trial_text(replace(trial, measurement=tail))
    assert "waves" not in trial_text(replace(trial, measurement=None))


def test_what_is_finished_is_told_while_the_next_is_measured(fakes: ModuleType, tmp_path: Path) -> None:
    """And before anything that may take longer: a compilation that is waited for, races, the end."""
    told: list[int] = []
    gaps: list[tuple[str, int]] = []

    class Watched(fakes.FakeEvaluator):  # type: ignore[name-defined, misc]
        exclusive, workers = False, 1

        def must_wait(self, configs: Sequence[Configuration]) -> bool:
            return len(self.screened) % 3 == 0

        def next_compiled(self, configs: Sequence[Configuration]) -> int:
            gaps.append(("waited" if self.must_wait(configs) else "ready", len(self.screened) - len(told)))
            return 0

        def screen(
            self, config: Configuration, best_ns: float | None, meanwhile: Callable[[], None] = lambda: None
        ) -> Screened:
            screened = super().screen(config, best_ns)
            meanwhile()
            assert len(told) == len(self.screened) - 1, "all but the one that is measured"
            return screened

        def race(self, *arguments: object, **options: object) -> Raced:
            assert len(told) >= len(self.screened)
            return super().race(*arguments, **options)

    def emit(event: TuneEvent) -> None:
        if isinstance(event, TrialFinished):
            told.append(event.trial.number)

    evaluator = Watched(fakes.bowl)
    run_job(fakes.job(trials=12), emit=emit, workdir=tmp_path, evaluator=lambda *_: evaluator)
    assert told == list(range(len(told))) and len(evaluator.screened) == 12
    assert {gap for how, gap in gaps if how == "waited"} == {0}
    assert {gap for how, gap in gaps if how == "ready"} == {1}
