"""Race and final of one search: which configuration is fastest, and whether it is faster than the default."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import JobError
from .evaluate.messages import Raced
from .ledger import low_ns, median_ns
from .measure.statistics import CONFIDENCE, familywise, median_interval, paired_ratio, verdict
from .search_run import SearchRun
from .space import Configuration, config_key
from .trial import Phase, Trial, utc_now
from .workloads.references import INTERPRETER

# Screening times of different moments differ by clocks and neighbours: what may be within this of the best may be it.
# That is judged by the low ends of their intervals: what a neighbour disturbed for most of its samples is not lost.
RACE_WIDTH = 1.3
RACERS = 8
RACE_ROUNDS = (40, 40, 80)
FINALISTS = 2
# Numbers of the final's two races, by which their inputs differ from those of all others.
FINAL_STAGES = (9, 10)
# No more than this: it bounds what the measuring process sends back.
FINAL_ROUNDS = 20_000
# Share of the time that is left for the race; without a budget, the seconds that race and final may take. The final
# takes a fraction of a second where nothing disturbs it, and all of them beside a neighbour that makes times vary by
# tens of percent.
RACE_SHARE = 0.6
RACE_SECONDS, FINAL_SECONDS = 3.0, 12.0
# What follows a race in any case: checks and rounds in two processes, and larger shapes.
AFTER_RACE_SECONDS = 1.3

_UNCOMPARED = (
    "the default (the first choice of each parameter) cannot be compiled, and what it gives is what all others are "
    "compared with: name choices first that can"
)


@dataclass(frozen=True)
class Races:
    """Races among what the screen found. ``default``: what all are compared with."""

    search: SearchRun
    default: Configuration

    def race(self) -> list[Trial]:
        """Race the default and what is close to the best; trials in that order."""
        configs = self._racers()
        if self.search.evaluator.exclusive:
            self.search.evaluator.settle()  # proposals that the time budget left unscreened
        times: list[list[float]] = [[] for _ in configs]
        alive = list(range(len(configs)))
        began, started_at = time.monotonic(), utc_now()
        limit = self.search.seconds_for(RACE_SHARE, RACE_SECONDS, AFTER_RACE_SECONDS) / len(RACE_ROUNDS)
        for stage, rounds in enumerate(RACE_ROUNDS):
            self.search.check_cancelled()
            raced, alive = self._race_sound(configs, alive, rounds, limit, stage)
            for position, index in enumerate(alive):
                times[index] += raced.times[position]
            alive = self._survivors(times, alive)
            if len(alive) <= 1 + FINALISTS:
                break
        sound = [i for i, values in enumerate(times) if values]
        return self._group("race", [configs[i] for i in sound], [times[i] for i in sound], raced, began, started_at)

    def _nothing_works(self, trials: Mapping[str, Trial]) -> JobError:
        spec, default = self.search.problem.spec, trials.get(config_key(self.default))
        hint = "the failed trials have the details"
        if len(trials) > 1 and spec.reference == INTERPRETER and default and default.status == "compile_error":
            hint = _UNCOMPARED
        return JobError(
            f"none of {len(trials)} configurations of {spec.name} works: {self.search.ledger.commonest_failure()}",
            hint=hint,
        )

    def _racers(self) -> list[Configuration]:
        successes = self.search.ledger.successes()
        if not successes:
            raise self._nothing_works(self.search.ledger.screened)
        base = self._baseline()
        limit = RACE_WIDTH * median_ns(successes[0])
        others = [
            trial
            for trial in sorted(successes, key=low_ns)
            if "duplicate_of" not in trial.metrics and config_key(trial.config) != config_key(base)
        ]
        # Where a machine became slower after the default was timed nobody is close: the best other one is raced anyway.
        close = [trial for trial in others if low_ns(trial) <= limit] or others[:1]
        return [base, *(trial.config for trial in close[:RACERS])]

    def _baseline(self) -> Configuration:
        """The default configuration; where it does not work, the first one that did."""
        trial = self.search.ledger.screened.get(config_key(self.default))
        if trial is not None and trial.status == "ok":
            return self.default
        return min(self.search.ledger.successes(), key=lambda t: t.number).config

    def _race_sound(
        self,
        configs: Sequence[Configuration],
        alive: list[int],
        rounds: int,
        seconds: float,
        stage: int,
        fresh: bool = False,
    ) -> tuple[Raced, list[int]]:
        """One stage among ``alive``, the baseline first. When it fails as a whole, each challenger runs alone against
        the baseline, and those that still fail drop out."""

        def attempt(chosen: list[int]) -> Raced:
            return self.search.evaluator.race(
                [configs[i] for i in chosen],
                rounds=rounds,
                seconds=seconds,
                seed=self.search.race_seed(stage),
                fresh=fresh,
            )

        raced = attempt(alive)
        if raced.status != "ok":
            sound = [i for i in alive[1:] if attempt([alive[0], i]).status == "ok"]
            alive = [alive[0], *sound]
            raced = attempt(alive)
        if raced.status != "ok":
            raise JobError(f"the configurations cannot be raced: {raced.error}")
        if raced.errors and raced.errors[0] is not None:
            raise JobError(f"the default configuration fails in the final: {raced.errors[0]}")
        return raced, alive

    def _survivors(self, times: list[list[float]], alive: list[int]) -> list[int]:
        """The default, and challengers that are not clearly slower than the fastest."""
        challengers = alive[1:]
        if not challengers:
            return alive
        leader = min(challengers, key=lambda i: median_interval(times[i]).median)
        kept = [i for i in challengers if i == leader or paired_ratio(times[i], times[leader]).low <= 1]
        return [alive[0], *kept]

    def final(self, race: list[Trial]) -> list[Trial]:
        """The default and the best of the race in another process, on new inputs, until the verdicts are settled.

        Where code and buffers come to lie differs from process to process and makes equal candidates differ, by more
        than a percent in one process of thirty. So who is FASTER runs again in another process, and that one counts:
        it was not chosen for its result.
        """
        self.search.check_cancelled()
        challengers = sorted(race[1:], key=lambda trial: trial.metrics["ratio"])[:FINALISTS]
        configs = [race[0].config, *(trial.config for trial in challengers)]
        began, started_at = time.monotonic(), utc_now()
        raced, times = self._fresh_times(configs, FINAL_STAGES[0])
        if _somebody_is_faster(list(times.values())):
            configs = [configs[i] for i in times]
            raced, times = self._fresh_times(configs, FINAL_STAGES[1])
        chosen = [configs[i] for i in times]
        return self._group("final", chosen, list(times.values()), raced, began, started_at)

    def _fresh_times(self, configs: Sequence[Configuration], stage: int) -> tuple[Raced, dict[int, list[float]]]:
        """Rounds in another process; the times of those that work there, by their place in ``configs``."""
        seconds = self.search.seconds_for(1.0, FINAL_SECONDS)
        raced, alive = self._race_sound(configs, list(range(len(configs))), FINAL_ROUNDS, seconds, stage, fresh=True)
        for position, error in enumerate(raced.errors):
            if error is not None:
                self._refute(configs[alive[position]], error, raced)
        return raced, {alive[position]: times for position, times in enumerate(raced.times) if times}

    def _refute(self, config: Configuration, error: str, raced: Raced) -> None:
        """Report that the final found a configuration wrong, which the screen had found right."""
        trial = Trial(
            number=len(self.search.trials),
            config=config,
            status="wrong_result",
            phase="final",
            error=error,
            reference=raced.reference,
            setup=self.search.setup,
        )
        self.search.add(trial)

    def _group(
        self,
        phase: Phase,
        configs: Sequence[Configuration],
        times: Sequence[Sequence[float]],
        raced: Raced,
        began: float,
        started_at: str,
    ) -> list[Trial]:
        """Report what ran together as trials that a resumed search recognises as complete."""
        share = (time.monotonic() - began) / len(configs)
        confidence = familywise(len(configs) - 1) if phase == "final" else CONFIDENCE
        replays = _replays_of_timed(raced) if phase == "final" else []
        group: list[Trial] = []
        for index, (config, values) in enumerate(zip(configs, times, strict=True)):
            interval = median_interval(values)
            # Who dropped out of a race ran in its first rounds only.
            ratio = paired_ratio(values, times[0][: len(values)], confidence)
            screened = self.search.ledger.screened.get(config_key(config))
            metrics = dict(screened.metrics) if screened is not None else {}
            metrics |= self.search.rates(interval) | {
                "ratio": ratio.median,
                "ratio_low": ratio.low,
                "ratio_high": ratio.high,
                "ratio_pairs": float(ratio.samples),
                "group_index": float(index),
                "group_size": float(len(configs)),
            }
            for name in ("compile_s", "check_s", "measure_s"):
                metrics.pop(name, None)
            metrics["check_s"] = raced.check_seconds / len(configs)
            metrics["measure_s"] = raced.measure_seconds / len(configs)
            if raced.sm_mhz is not None:
                metrics["sm_mhz"] = raced.sm_mhz
            code = None if screened is None or screened.measurement is None else screened.measurement.code
            replay_ns = median_interval(replays[index]) if replays and replays[index] else None
            group.append(
                Trial(
                    number=len(self.search.trials),
                    config=config,
                    status="ok",
                    phase=phase,
                    time_ns=interval,
                    reference=raced.reference,
                    measurement=self.search.measurement(interval, raced.protocol, code, raced.sm_mhz, replay_ns),
                    metrics=metrics,
                    duration_s=share,
                    started_at=started_at,
                    setup=self.search.setup,
                )
            )
            self.search.add(group[-1])
        self.search.report()
        return group


def _somebody_is_faster(times: Sequence[Sequence[float]]) -> bool:
    """Whether the rounds so far call any challenger FASTER than the default, the first."""
    confidence = familywise(len(times) - 1)
    return any(verdict(paired_ratio(challenger, times[0], confidence)) == "FASTER" for challenger in times[1:])


def _replays_of_timed(raced: Raced) -> list[list[float]]:
    """Times in graphs of the candidates that have times, in their order; empty where none were taken."""
    if not raced.replays:
        return []
    return [replays for replays, times in zip(raced.replays, raced.times, strict=True) if times]
