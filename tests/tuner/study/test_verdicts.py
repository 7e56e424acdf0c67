"""What a search concludes: the best, the default, and how sure it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from deuteron.tuner.decision import choose
from deuteron.tuner.evaluate.messages import Raced, Screened
from deuteron.tuner.events import JobFinished, JobStarted, ShapeFinished, ShapeStarted, TrialFinished
from deuteron.tuner.experience.phases import settled_times
from deuteron.tuner.measure.statistics import Interval, paired_ratio
from deuteron.tuner.measure.stopping import next_look
from deuteron.tuner.progress import verdict_text
from deuteron.tuner.space import Configuration, config_key
from deuteron.tuner.trial import Trial


def test_finds_the_best_and_says_how_sure(fakes: ModuleType, tmp_path: Path) -> None:
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    run = fakes.Run(fakes.job(), evaluator, tmp_path)
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


def test_finalists_are_the_best_of_the_race_not_of_the_screening(fakes: ModuleType, tmp_path: Path) -> None:
    """Eight candidates are close enough to race, and each that screens better races worse."""

    def place(config: Configuration) -> int:
        return int(config["ROWS"]).bit_length() + 5 * int(config["TILES"]).bit_length()

    class Misleading(fakes.FakeEvaluator):  # type: ignore[name-defined, misc]
        def screen(self, config: Configuration, *args: Any, **kwargs: Any) -> Screened:
            screened: Screened = super().screen(config, *args, **kwargs)
            assert screened.time_ns is not None
            factor = (1000 - place(config)) / screened.time_ns.median
            ends = {name: getattr(screened.time_ns, name) * factor for name in ("median", "low", "high")}
            return replace(screened, time_ns=replace(screened.time_ns, **ends))

    evaluator = Misleading(lambda config: 1000.0 + 5 * place(config), noise=0.0001)
    run = fakes.Run(fakes.job(), evaluator, tmp_path)
    raced = sorted((trial for trial in run.trials if trial.phase == "race"), key=lambda trial: place(trial.config))
    assert len(raced) > 4
    _, (_, *finalists) = evaluator.races[-1]
    best = [config_key(trial.config) for trial in raced if trial.config != run.records[0].default_config][:2]
    assert finalists == best


def test_nothing_beats_the_default(fakes: ModuleType, tmp_path: Path) -> None:
    def flat(config: Configuration) -> float:
        return 1000.0

    (record,) = fakes.Run(fakes.job(), fakes.FakeEvaluator(flat), tmp_path).records
    assert record.config == record.default_config == {"ROWS": 1, "TILES": 1}
    assert (record.speedup.median, record.verdict) == (1.0, "SAME")
    assert record.challenger is not None and 0.99 < record.challenger.low < record.challenger.high < 1.01


def test_who_is_not_close_is_compared_where_nobody_is(fakes: ModuleType, tmp_path: Path) -> None:
    """A machine that became slower after the default was timed makes all others look slow: the race tells."""

    class Drifting(fakes.FakeEvaluator):  # type: ignore[name-defined, misc]
        def screen(self, config: Configuration, *args: Any, **kwargs: Any) -> Screened:
            screened: Screened = super().screen(config, *args, **kwargs)
            if config == {"ROWS": 1, "TILES": 1}:
                return screened
            assert screened.time_ns is not None
            ends = {name: getattr(screened.time_ns, name) * 2 for name in ("median", "low", "high")}
            return replace(screened, time_ns=replace(screened.time_ns, **ends))

    evaluator = Drifting(lambda config: 1000.0)
    (record,) = fakes.Run(fakes.job(), evaluator, tmp_path).records
    assert (record.config, record.verdict) == (record.default_config, "SAME")
    assert record.challenger is not None and len(evaluator.races[-1][1]) == 2


def test_who_may_be_as_fast_as_the_leader_goes_on_racing(fakes: ModuleType, tmp_path: Path) -> None:
    """Noise, not speed, tells some of eight equals from the others."""
    evaluator = fakes.FakeEvaluator(lambda config: 1000.0 if config == {"ROWS": 1, "TILES": 1} else 700.0, noise=0.05)
    fakes.Run(fakes.job(), evaluator, tmp_path)
    racers = [len(configs) for fresh, configs in evaluator.races if not fresh]
    assert len(racers) == 3 and racers[0] == 9 and racers[-1] > 6


def test_no_two_races_have_one_order_and_one_choice_of_inputs(fakes: ModuleType, tmp_path: Path) -> None:
    """Those of a final above all, whose second one is to tell what was luck in the first."""
    seeds: list[int] = []

    class Noting(fakes.FakeEvaluator):  # type: ignore[name-defined, misc]
        def race(self, configs: Sequence[Configuration], *, seed: int, **kwargs: Any) -> Raced:
            seeds.append(seed)
            return super().race(configs, seed=seed, **kwargs)  # type: ignore[no-any-return]

    evaluator = Noting(fakes.bowl)
    fakes.Run(fakes.job(), evaluator, tmp_path)
    assert [fresh for fresh, _ in evaluator.races][-3:] == [False, True, True]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize(
    ("ends", "kept"),
    [
        ([(0.90, 0.89, 0.91), (0.80, 0.79, 0.81)], 2),
        ([(0.80, 0.79, 0.81), (0.90, 0.89, 0.91)], 1),
        ([(0.90, 0.89, 0.91), (0.80, 0.50, 1.20)], 1),
        ([(1.10, 1.09, 1.11), (0.80, 0.50, 1.20)], 0),
    ],
    ids=["the second", "the first", "the one that is known", "the default"],
)
def test_of_all_that_are_faster_the_fastest_is_kept(ends: list[tuple[float, float, float]], kept: int) -> None:
    """The final decides, not the order of the race; and by what it knows."""
    final = []
    for number, (ratio, low, high) in enumerate([(1.0, 1.0, 1.0), *ends]):
        metrics = {"ratio": ratio, "ratio_low": low, "ratio_high": high, "ratio_pairs": 40.0}
        time = Interval(1000 * ratio, 1000 * low, 1000 * high, 40)
        final.append(Trial(number, {"ROWS": number}, "ok", "final", time_ns=time, metrics=metrics))
    decision = choose(final)
    assert decision.stored is final[kept] and (decision.verdict == "FASTER") == (kept > 0)
    assert decision.speedup.median == (1 / ends[kept - 1][0] if kept else 1)


def test_without_challengers_nothing_is_said_of_them(fakes: ModuleType, tmp_path: Path) -> None:
    def alone(config: Configuration) -> float | str:
        return 1000.0 if config == {"ROWS": 1, "TILES": 1} else "timeout"

    for spec, time_of in ((fakes.job(trials=3), alone), (fakes.job(trials=1), fakes.bowl)):
        (record,) = fakes.Run(spec, fakes.FakeEvaluator(time_of), tmp_path).records
        assert record.config == record.default_config
        assert (record.verdict, record.challenger) == ("AMBIGUOUS", None)
        assert verdict_text(record) == "default kept: no challenger"


def test_who_is_wrong_in_the_final_is_not_stored(fakes: ModuleType, tmp_path: Path) -> None:
    """And a trial says so; nor does a later search begin with it."""

    class Racing(fakes.FakeEvaluator):
        def race(self, configs: Sequence[Configuration], *, fresh: bool, **kwargs: Any) -> Raced:
            raced = super().race(configs, fresh=fresh, **kwargs)
            wrong = [fresh and config in racing for config in configs]
            errors = ["wrong now and then" if each else None for each in wrong]
            times = [[] if each else times for each, times in zip(wrong, raced.times, strict=True)]
            return replace(raced, errors=errors, times=times)

    best, second = {"ROWS": 4, "TILES": 2}, {"ROWS": 2, "TILES": 2}
    for racing, kept in (([best], second), ([best, second, {"ROWS": 4, "TILES": 1}], {"ROWS": 1, "TILES": 1})):
        run = fakes.Run(fakes.job(), Racing(lambda c: fakes.bowl(c) + (c == second) * -90), tmp_path)
        (record,) = run.records
        assert record.config == kept and record.verdict == ("FASTER" if kept == second else "AMBIGUOUS")
        refuted = [trial for trial in run.trials if (trial.phase, trial.status) == ("final", "wrong_result")]
        assert refuted and all(trial.config in racing and trial.error == "wrong now and then" for trial in refuted)
        known = [dict(one.config) for one in settled_times(run.trials)]
        assert kept in known and not any(dict(trial.config) in known for trial in refuted)
        assert fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path, run.finished).records == run.records


def test_a_gain_below_the_margin_keeps_the_default(fakes: ModuleType, tmp_path: Path) -> None:
    """0.5 % faster is real here, and known to be, but not worth another configuration."""

    def slightly(config: Configuration) -> float:
        return 995.0 if config["ROWS"] == 4 else 1000.0

    (record,) = fakes.Run(fakes.job(), fakes.FakeEvaluator(slightly, noise=0.001), tmp_path).records
    assert record.config == record.default_config and record.verdict == "SAME"


def test_final_takes_more_rounds_where_times_vary_more(fakes: ModuleType, tmp_path: Path) -> None:
    rounds = []
    for noise in (0.001, 0.03):
        run = fakes.Run(fakes.job(), fakes.FakeEvaluator(lambda config: 1000.0, noise=noise), tmp_path)
        assert run.records[0].verdict == "SAME"
        rounds.append(run.trials[-1].metrics["ratio_pairs"])
    assert rounds[0] == next_look(0) and rounds[1] > 20 * rounds[0]


def test_final_intervals_hold_for_all_finalists_together(fakes: ModuleType, tmp_path: Path) -> None:
    evaluator = fakes.FakeEvaluator(lambda config: 1000.0, noise=0.02)
    run = fakes.Run(fakes.job(), evaluator, tmp_path)
    default, *challengers = evaluator.last.times
    assert len(challengers) == 2
    final = [trial for trial in run.trials if trial.phase == "final"]
    for trial, times in zip(final[1:], challengers, strict=True):
        ratio = paired_ratio(times, default, 0.975)
        assert (trial.metrics["ratio_low"], trial.metrics["ratio_high"]) == (ratio.low, ratio.high)
        assert ratio != paired_ratio(times, default)


def test_who_is_faster_in_one_process_only_is_not_stored(fakes: ModuleType, tmp_path: Path) -> None:
    """Code that happens to lie well in a process is 1.5 % faster there, and in no other."""
    best = {"ROWS": 4, "TILES": 2}

    class Placed(fakes.FakeEvaluator):
        def race(self, *args: Any, **kwargs: Any) -> Raced:
            self.fresh = sum(fresh for fresh, _ in self.races) + kwargs["fresh"]
            return super().race(*args, **kwargs)

        def sample(self, config: Configuration) -> float:
            placed = dict(config) == best and getattr(self, "fresh", 0) <= lucky
            return super().sample(config) * (0.985 if placed else 1.0)

    for lucky, said in ((0, "SAME"), (1, "SAME"), (2, "FASTER")):
        evaluator = Placed(lambda config: 1000.0, noise=0.005)
        (record,) = fakes.Run(fakes.job(), evaluator, tmp_path).records
        assert record.verdict == said
        assert sum(fresh for fresh, _ in evaluator.races) == (1 if lucky == 0 else 2)


def test_who_drops_out_of_a_race_is_compared_in_its_own_rounds(fakes: ModuleType, tmp_path: Path) -> None:
    """The machine takes twice as long after each stage: ratios of times of different stages would be nonsense."""

    class Slowing(fakes.FakeEvaluator):
        def race(self, *args: Any, **kwargs: Any) -> Raced:
            raced, slower = super().race(*args, **kwargs), 2.0 ** len(self.races)
            return replace(raced, times=[[slower * time for time in times] for times in raced.times])

    def three_groups(config: Configuration) -> float:
        return 1000.0 if config["ROWS"] == 4 else 1100.0

    evaluator = Slowing(three_groups)
    run = fakes.Run(fakes.job(trials=12), evaluator, tmp_path)
    assert len(evaluator.races) >= 3  # two stages at least, and the final
    for trial in run.trials:
        if trial.phase == "race":
            assert trial.metrics["ratio"] == pytest.approx(three_groups(trial.config) / 1100, rel=0.01)


def test_bad_luck_while_screening_does_not_exclude_the_best(fakes: ModuleType, tmp_path: Path) -> None:
    """A neighbour made most of its samples slow, but not all: it may be the best, and the race finds out."""
    best = {"ROWS": 4, "TILES": 2}

    class Unlucky(fakes.FakeEvaluator):
        def screen(
            self, config: Configuration, best_ns: float | None, meanwhile: Callable[[], None] = lambda: None
        ) -> Screened:
            screened = super().screen(config, best_ns)
            return replace(screened, time_ns=Interval(1500, 1000, 9000, 30)) if dict(config) == best else screened

    (record,) = fakes.Run(fakes.job(), Unlucky(fakes.bowl), tmp_path).records
    assert record.config == best


def test_lucky_noise_does_not_replace_the_default(fakes: ModuleType, tmp_path: Path) -> None:
    """With 20 % noise some configuration always looks faster while screening."""

    def flat(config: Configuration) -> float:
        return 1000.0

    kept = 0
    for seed in range(20):
        evaluator = fakes.FakeEvaluator(flat, noise=0.2)
        evaluator.rng = random.Random(seed)
        (record,) = fakes.Run(fakes.job(), evaluator, tmp_path).records
        kept += record.config == record.default_config
    assert kept == 20
