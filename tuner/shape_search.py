"""The search for one shape and dtype: screen, race, final."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .codec import Scalar
from .errors import JobError
from .evaluate.evaluator import Evaluator
from .evaluate.messages import Compiled, Raced, Screened
from .experience import Course
from .ledger import Ledger, low_ns, median_ns
from .measure.gauge import Gauge
from .measure.measurement import CodeFacts, Measurement, TimingProtocol
from .measure.statistics import CONFIDENCE, Interval, familywise, median_interval, paired_ratio, verdict
from .space import Configuration, Space, config_key
from .strategies import Outcome, Strategy
from .trial import Phase, Trial, utc_now
from .workloads import Problem

# Screening times of different moments differ by clocks and neighbours: what may be within this of the best may be it.
# That is judged by the low ends of their intervals: what a neighbour disturbed for most of its samples is not lost.
RACE_WIDTH = 1.3
RACERS = 8
RACE_ROUNDS = (40, 40, 80)
FINALISTS = 2
# No more than this: it bounds what the measuring process sends back.
FINAL_ROUNDS = 20_000
# Shares of a time budget; without one, the seconds that race and final may take. The final takes a fraction of a second
# where nothing disturbs it, and all of them beside a neighbour that makes times vary by tens of percent.
SCREEN_SHARE, RACE_SHARE = 0.75, 0.6
RACE_SECONDS, FINAL_SECONDS = 3.0, 12.0

# What a search that starts from others proposes even when its processes took all of its time to start, and for how
# long: the best known come first.
LEAST_PROPOSED, LEAST_SECONDS = 8, 3.0

DEFAULT_REASON = "the default"

# Proposals in flight per compile process.
AHEAD = 2
AHEAD_EXCLUSIVE = 4


class Cancelled(Exception):  # noqa: N818 -- not an error: the caller asked for it
    """The job was asked to stop."""


@dataclass
class ShapeSearch:
    """Finds the best configuration of one problem.

    ``screen``: every proposal is compiled, checked and timed briefly; the default configuration first. ``race``: those
    close to the best run against each other in interleaved rounds, losers drop out. ``final``: the best two against the
    default in a new process on new inputs, for as many rounds as the verdicts need. Finished trials of an interrupted
    search are taken over: screened ones are told to the strategy, a complete race or final is not repeated. ``course``:
    of a search that starts from others, which may end it early. ``settle``: the screen also ends when the strategy says
    that nothing more is to be won; ``ended`` then says why.
    """

    problem: Problem
    space: Space
    default: Configuration
    strategy: Strategy
    evaluator: Evaluator
    gauge: Gauge
    finish: Callable[[Trial, str | None], None]
    cancelled: Callable[[], bool]
    max_trials: int | None
    seconds: float | None
    seed: int
    settle: bool = False
    trials: list[Trial] = field(default_factory=list)
    course: Course | None = None
    ended: str | None = None

    def __post_init__(self) -> None:
        self._ledger = Ledger(self.trials)
        self._began = time.monotonic() - self._ledger.spent_s
        self._first_screened_at: float | None = None
        self._identities: dict[str, Trial] = {}
        for trial in self._ledger.screened.values():
            self._tell(trial)

    def run(self) -> list[Trial]:
        """Search; the trials of the final, the default first. Raises :class:`Cancelled`, and :class:`JobError` when no
        configuration works."""
        final = self._ledger.complete("final")
        if final:
            return final
        race = self._ledger.complete("race")
        if not race:
            self._screen()
            race = self._race()
        return self._final(race)

    # -- screen ------------------------------------------------------------------------------------------------

    def _screen(self) -> None:
        waiting: deque[dict[str, Scalar]] = deque()
        ahead = self.evaluator.workers * (AHEAD_EXCLUSIVE if self.evaluator.exclusive else AHEAD)
        exhausted = False
        if config_key(self.default) not in self._ledger.screened:
            self._propose(dict(self.default), waiting)
        while True:
            refill = not waiting or not self.evaluator.exclusive
            while refill and not exhausted and len(waiting) < ahead and self._room(len(waiting)):
                if self.settle and self._ledger.successes():
                    self.ended = self.strategy.settled()
                    if self.ended is not None:
                        break
                config = self.strategy.ask()
                exhausted = config is None
                if config is not None and config_key(config) != config_key(self.default):
                    self._propose(config, waiting)
            if not waiting:
                break
            if self.evaluator.exclusive:
                self.evaluator.settle()
            self._check_cancelled()
            self._screen_one(waiting.popleft())
            self._first_screened_at = self._first_screened_at or time.monotonic()
            if self._time_is_up(SCREEN_SHARE) and self._ledger.successes() and not self._owes():
                break
            if self.course is not None and self.course.over:
                break

    def _propose(self, config: dict[str, Scalar], waiting: deque[dict[str, Scalar]]) -> None:
        self.evaluator.submit(config)
        waiting.append(config)

    def _owes(self) -> bool:
        """Whether too little was proposed of what earlier searches teach."""
        if self.course is None or self._first_screened_at is None:
            return False
        few = len(self._ledger.screened) <= LEAST_PROPOSED
        return few and time.monotonic() - self._first_screened_at < LEAST_SECONDS

    def _room(self, waiting: int) -> bool:
        return self.max_trials is None or len(self._ledger.screened) + waiting < self.max_trials

    def _screen_one(self, config: dict[str, Scalar]) -> None:
        began, started_at = time.monotonic(), utc_now()
        compiled = self.evaluator.compiled(config)
        twin = self._identities.get(compiled.identity or "")
        if compiled.status != "ok":
            screened = Screened(compiled.status, compiled.error)
        elif twin is not None:
            screened = Screened(
                twin.status, twin.error, twin.time_ns, reference=twin.reference, protocol=_protocol(twin)
            )
        else:
            best = self._ledger.incumbent()
            best_ns = None if best is None or best.time_ns is None else best.time_ns.median
            screened = self.evaluator.screen(config, best_ns)
        metrics = self._metrics(compiled, screened)
        if twin is not None:
            metrics["duplicate_of"] = float(twin.number)
        trial = Trial(
            number=len(self.trials),
            config=config,
            status=screened.status,
            phase="screen",
            time_ns=screened.time_ns,
            error=screened.error,
            reference=screened.reference,
            reason=self._reason(config),
            measurement=self._measurement(screened.time_ns, screened.protocol, compiled.code),
            metrics=metrics,
            duration_s=time.monotonic() - began,
            started_at=started_at,
        )
        if compiled.identity and twin is None and trial.status in ("ok", "wrong_result"):
            self._identities[compiled.identity] = trial
        self._tell(trial)
        self._add(trial)

    def _tell(self, trial: Trial) -> None:
        outcome = _outcome(trial)
        self.strategy.tell(trial.config, outcome)
        if self.course is not None:
            self.course.tell(trial.config, outcome.value)

    def _reason(self, config: Configuration) -> str | None:
        is_default = config_key(config) == config_key(self.default)
        return DEFAULT_REASON if is_default else self.strategy.reason(config)

    def _metrics(self, compiled: Compiled, screened: Screened) -> dict[str, float]:
        metrics = dict(compiled.metrics)
        metrics["compile_s"] = compiled.seconds
        if screened.check_seconds:
            metrics["check_s"] = screened.check_seconds
            metrics["measure_s"] = screened.measure_seconds
        if screened.worst_error is not None:
            metrics["worst_error"] = screened.worst_error
        return metrics | self._rates(screened.time_ns)

    def _measurement(
        self,
        time_ns: Interval | None,
        protocol: TimingProtocol | None,
        code: CodeFacts | None,
        sm_mhz: float | None = None,
    ) -> Measurement | None:
        if time_ns is None or protocol is None:
            return None
        return self.gauge.measurement(time_ns, protocol, code, sm_mhz=sm_mhz)

    def _rates(self, time_ns: Interval | None) -> dict[str, float]:
        if time_ns is None:
            return {}
        seconds = time_ns.median / 1e9
        return {"flop_s": self.problem.flops / seconds, "byte_s": self.problem.bytes / seconds}

    # -- race --------------------------------------------------------------------------------------------------

    def _race(self) -> list[Trial]:
        """Race the default and what is close to the best; trials in that order."""
        configs = self._racers()
        if self.evaluator.exclusive:
            self.evaluator.settle()  # proposals that the time budget left unscreened
        times: list[list[float]] = [[] for _ in configs]
        alive = list(range(len(configs)))
        last: Raced | None = None
        began, started_at = time.monotonic(), utc_now()
        limit = self._phase_seconds(RACE_SHARE, RACE_SECONDS) / len(RACE_ROUNDS)
        for stage, rounds in enumerate(RACE_ROUNDS):
            self._check_cancelled()
            raced, alive = self._race_sound(configs, alive, rounds, limit, stage)
            last = raced
            for position, index in enumerate(alive):
                times[index] += raced.times[position]
            alive = self._survivors(times, alive)
            if len(alive) <= 1 + FINALISTS:
                break
        sound = [i for i, values in enumerate(times) if values]
        return self._group("race", [configs[i] for i in sound], [times[i] for i in sound], last, began, started_at)

    def _racers(self) -> list[Configuration]:
        successes = self._ledger.successes()
        if not successes:
            raise JobError(
                f"none of {len(self._ledger.screened)} configurations of {self.problem.spec.name} works: "
                f"{self._ledger.commonest_failure()}",
                hint="the failed trials have the details",
            )
        base = self._baseline()
        limit = RACE_WIDTH * median_ns(successes[0])
        close = [
            trial
            for trial in sorted(successes, key=low_ns)
            if low_ns(trial) <= limit
            and "duplicate_of" not in trial.metrics
            and config_key(trial.config) != config_key(base)
        ]
        return [base, *(trial.config for trial in close[:RACERS])]

    def _baseline(self) -> Configuration:
        """The default configuration; where it does not work, the first one that did."""
        trial = self._ledger.screened.get(config_key(self.default))
        if trial is not None and trial.status == "ok":
            return self.default
        return min(self._ledger.successes(), key=lambda t: t.number).config

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
            return self.evaluator.race(
                [configs[i] for i in chosen],
                rounds=rounds,
                seconds=seconds,
                seed=self.seed + 7919 * (stage + 1),
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
            raise JobError(f"the default configuration fails on new inputs: {raced.errors[0]}")
        return raced, alive

    def _survivors(self, times: list[list[float]], alive: list[int]) -> list[int]:
        """The default, and challengers that are not clearly slower than the fastest."""
        challengers = alive[1:]
        if not challengers:
            return alive
        leader = min(challengers, key=lambda i: median_interval(times[i]).median)
        kept = [i for i in challengers if i == leader or paired_ratio(times[i], times[leader]).low <= 1]
        return [alive[0], *kept]

    # -- final -------------------------------------------------------------------------------------------------

    def _final(self, race: list[Trial]) -> list[Trial]:
        """The default and the best of the race in a new process, on new inputs, until the verdicts are settled.

        Where code and buffers come to lie differs from process to process and makes equal candidates differ, by more
        than a percent in one process of thirty. So who is FASTER runs again in another process, and that one counts:
        it was not chosen for its result.
        """
        self._check_cancelled()
        challengers = sorted(race[1:], key=lambda trial: trial.metrics["ratio"])[:FINALISTS]
        configs = [race[0].config, *(trial.config for trial in challengers)]
        began, started_at = time.monotonic(), utc_now()
        raced, times = self._fresh_times(configs, stage=9)
        if _somebody_is_faster(list(times.values())):
            configs = [configs[i] for i in times]
            raced, times = self._fresh_times(configs, stage=10)
        chosen = [configs[i] for i in times]
        return self._group("final", chosen, list(times.values()), raced, began, started_at)

    def _fresh_times(self, configs: Sequence[Configuration], stage: int) -> tuple[Raced, dict[int, list[float]]]:
        """Rounds in a new process; the times of those that work there, by their place in ``configs``."""
        seconds = self._phase_seconds(1.0, FINAL_SECONDS)
        raced, alive = self._race_sound(configs, list(range(len(configs))), FINAL_ROUNDS, seconds, stage, fresh=True)
        return raced, {alive[position]: times for position, times in enumerate(raced.times) if times}

    def _group(
        self,
        phase: Phase,
        configs: Sequence[Configuration],
        times: Sequence[Sequence[float]],
        raced: Raced | None,
        began: float,
        started_at: str,
    ) -> list[Trial]:
        """Report what ran together as trials that a resumed search recognises as complete."""
        share = (time.monotonic() - began) / len(configs)
        confidence = familywise(len(configs) - 1) if phase == "final" else CONFIDENCE
        group: list[Trial] = []
        for index, (config, values) in enumerate(zip(configs, times, strict=True)):
            interval = median_interval(values)
            # Who dropped out of a race ran in its first rounds only.
            ratio = paired_ratio(values, times[0][: len(values)], confidence)
            screened = self._ledger.screened.get(config_key(config))
            metrics = dict(screened.metrics) if screened is not None else {}
            metrics |= self._rates(interval) | {
                "ratio": ratio.median,
                "ratio_low": ratio.low,
                "ratio_high": ratio.high,
                "ratio_pairs": float(ratio.samples),
                "group_index": float(index),
                "group_size": float(len(configs)),
            }
            for name in ("compile_s", "check_s", "measure_s"):
                metrics.pop(name, None)
            if raced is not None:
                metrics["check_s"] = raced.check_seconds / len(configs)
                metrics["measure_s"] = raced.measure_seconds / len(configs)
            if raced is not None and raced.sm_mhz is not None:
                metrics["sm_mhz"] = raced.sm_mhz
            code = None if screened is None or screened.measurement is None else screened.measurement.code
            protocol, sm_mhz = (None, None) if raced is None else (raced.protocol, raced.sm_mhz)
            group.append(
                Trial(
                    number=len(self.trials),
                    config=config,
                    status="ok",
                    phase=phase,
                    time_ns=interval,
                    reference=None if raced is None else raced.reference,
                    measurement=self._measurement(interval, protocol, code, sm_mhz),
                    metrics=metrics,
                    duration_s=share,
                    started_at=started_at,
                )
            )
            self._add(group[-1])
        return group

    # -- what all phases share ---------------------------------------------------------------------------------

    def _add(self, trial: Trial) -> None:
        self._ledger.add(trial)
        best = self._ledger.incumbent()
        self.finish(trial, None if best is None else best.id)

    def _check_cancelled(self) -> None:
        if self.cancelled():
            raise Cancelled

    def _time_is_up(self, share: float) -> bool:
        return self.seconds is not None and time.monotonic() - self._began > share * self.seconds

    def _phase_seconds(self, share: float, usual: float) -> float:
        """What a phase may take: ``share`` of the time that is left, never more than usual."""
        if self.seconds is None:
            return usual
        left = self._began + self.seconds - time.monotonic()
        return min(usual, max(0.0, left) * share)


def _somebody_is_faster(times: Sequence[Sequence[float]]) -> bool:
    """Whether the rounds so far call any challenger FASTER than the default, the first."""
    confidence = familywise(len(times) - 1)
    return any(verdict(paired_ratio(challenger, times[0], confidence)) == "FASTER" for challenger in times[1:])


def _outcome(trial: Trial) -> Outcome:
    return Outcome(None if trial.time_ns is None else trial.time_ns.median, trial.status, trial.measurement)


def _protocol(trial: Trial) -> TimingProtocol | None:
    return None if trial.measurement is None else trial.measurement.protocol
