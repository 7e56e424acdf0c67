"""The first phase of a search: every proposal is compiled, checked and timed briefly."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from .codec import Scalar
from .errors import JobError
from .evaluate.messages import Compiled, Screened
from .experience import Companions, Course, Start
from .measure.measurement import TimingProtocol
from .pace import Pace
from .races import AFTER_RACE_SECONDS, FINAL_STAGES, RACERS
from .search_run import SearchRun
from .space import Configuration, config_key
from .step_clock import BEGIN, COMPILE, PROPOSE
from .strategies import Outcome, Strategy
from .trial import Trial, utc_now

# Shares of a time budget that are left for race and final: the least, and the most, where they are expected to take
# longer than the least.
LEAST_LEFT, MOST_LEFT = 0.25, 0.5

# What a search that starts from others proposes even when its processes took all of its time to start, and for how
# long: the best known come first.
LEAST_PROPOSED, LEAST_SECONDS = 8, 3.0

DEFAULT_REASON = "the default"

_COVER = (
    "the default (the first choice of each --search) needs a larger block or grid, such as --constexpr "
    "BLOCK=next_power_of_2(N), or the choices a constraint, such as --constraint 'BLOCK >= N'; where smaller ones give "
    "the other result too, the kernel is wrong with the default alone: name another choice first"
)

# Proposals in flight per compile process where nothing compiles while something is timed.
AHEAD_EXCLUSIVE = 4


@dataclass
class Screening:
    """Follows a strategy, the default configuration first, until the budget is spent or nothing is left.

    Trials of an interrupted run are told to the strategy, which ``strategy_from`` makes. ``start``: what other searches
    know; such a search has a ``course``, which may end it early. Where ``companions`` come to know more, it goes on
    with a strategy that starts from that. ``settle``: it also ends when the strategy says that nothing more is to be
    won; ``ended`` then says why.
    """

    search: SearchRun
    default: Configuration
    strategy_from: Callable[[Start | None], Strategy]
    max_trials: int | None
    settle: bool = False
    start: Start | None = None
    companions: Companions | None = None
    ended: str | None = None

    def __post_init__(self) -> None:
        self._waiting: deque[dict[str, Scalar]] = deque()
        self._reasons: dict[str, str | None] = {}
        self._exhausted = False
        self._first_screened_at: float | None = None
        self._identities: dict[str, Trial] = {}
        self._pace = Pace(self.search.evaluator.workers)
        self._begin(self.start)

    def run(self) -> None:
        """Screen; raises :class:`~.search_run.Cancelled`, and :class:`JobError` where the default configuration turns
        out to be wrong."""
        try:
            self._screen()
        finally:
            self.search.report()

    def _screen(self) -> None:
        with self.search.clock.step(BEGIN):
            self._prepare_finals()
            if config_key(self.default) not in self.search.ledger.screened:
                self._propose(dict(self.default), DEFAULT_REASON)
        while True:
            if not self._waiting or not self.search.evaluator.exclusive:
                with self.search.clock.step(PROPOSE):
                    self._refill()
            if not self._waiting:
                break
            with self.search.clock.step(COMPILE):
                if self.search.evaluator.exclusive:
                    self.search.evaluator.settle()
                self.search.check_cancelled()
                config = self._next()
            self._screen_one(config)
            if self._first_screened_at is None:
                self._first_screened_at = time.monotonic()
            if self._time_is_up() and self.search.ledger.successes() and not self._owes():
                break
            if self.course is not None and self.course.over:
                break
            with self.search.clock.step(PROPOSE):
                self._hear()

    def _time_is_up(self) -> bool:
        """Whether race and final need what is left of the time. In a race each is checked and timed about as long as
        here."""
        races = (RACERS + 1) * self._pace.measuring + AFTER_RACE_SECONDS
        total = self.search.seconds or 0.0
        return self.search.time_is_up(min(max(races, LEAST_LEFT * total), MOST_LEFT * total))

    def _hear(self) -> None:
        """Where companions know more by now, start from that."""
        if self.companions is None:
            return
        # What they know is fitted in another thread, which must not disturb what is timed on a CPU.
        wait = self.search.evaluator.exclusive
        start = self.companions.news(len(self.search.ledger.screened), wait=wait)
        if start is not None:
            self._begin(start)

    def _begin(self, start: Start | None) -> None:
        """Go on from what was screened with a strategy that starts from ``start``."""
        self.strategy = self.strategy_from(start)
        self.course = None if start is None else Course(start)
        for trial in self.search.ledger.screened.values():
            self._tell(trial)

    def _refill(self, measured: int = 0) -> None:
        """Ask for proposals until as many wait as shall; ``measured``: how many the device is at work on."""
        while not self._exhausted and len(self._waiting) < self._ahead and self._room(len(self._waiting) + measured):
            if self.settle and self.search.ledger.successes():
                self.ended = self.strategy.settled()
                if self.ended is not None:
                    break
            config = self.strategy.ask()
            self._exhausted = config is None
            # What waits may be of a strategy that this one does not know of.
            if config is not None and config_key(config) not in self._reasons:
                self._propose(config, self.strategy.reason(config))

    @property
    def _ahead(self) -> int:
        """How many proposals shall wait, on a GPU beside the one that is measured."""
        evaluator = self.search.evaluator
        return evaluator.workers * AHEAD_EXCLUSIVE if evaluator.exclusive else max(1, self._pace.ahead - 1)

    def _prepare_finals(self) -> None:
        """Their processes take seconds to start, and where tensors are large for what they are compared with."""
        for stage in FINAL_STAGES:
            self.search.evaluator.prepare_final(self.search.race_seed(stage))

    def _propose(self, config: dict[str, Scalar], reason: str | None) -> None:
        self._reasons[config_key(config)] = reason
        self.search.evaluator.submit(config)
        self._waiting.append(config)

    def _next(self) -> dict[str, Scalar]:
        """Takes the first that is compiled, so that none waits for one that takes long; but the default is the first of
        all, with which others are compared."""
        if self.search.evaluator.must_wait(tuple(self._waiting)):
            self.search.report()
        place = self.search.evaluator.next_compiled(tuple(self._waiting)) if self.search.ledger.screened else 0
        config = self._waiting[place]
        del self._waiting[place]
        return config

    def _owes(self) -> bool:
        """Whether too little was proposed of what earlier searches teach."""
        if self.course is None or self._first_screened_at is None:
            return False
        few = len(self.search.ledger.screened) <= LEAST_PROPOSED
        return few and time.monotonic() - self._first_screened_at < LEAST_SECONDS

    def _room(self, waiting: int) -> bool:
        return self.max_trials is None or len(self.search.ledger.screened) + waiting < self.max_trials

    def _screen_one(self, config: dict[str, Scalar]) -> None:
        began, started_at = time.monotonic(), utc_now()
        compiled = self.search.evaluator.compiled(config)
        twin = self._identities.get(compiled.identity or "")
        if compiled.status != "ok":
            screened = Screened(compiled.status, compiled.error)
        elif twin is not None:
            screened = Screened(
                twin.status, twin.error, twin.time_ns, reference=twin.reference, protocol=_protocol(twin)
            )
        else:
            best = self.search.ledger.incumbent()
            best_ns = None if best is None or best.time_ns is None else best.time_ns.median
            screened = self.search.evaluator.screen(config, best_ns, self._meanwhile)
            if screened.doubt is not None:  # no trial says so: a search that goes on finds it out again
                raise JobError(screened.doubt, hint=_COVER)
            if screened.measure_seconds:
                self._pace.note(compiled.seconds, screened.check_seconds + screened.measure_seconds)
        metrics = self._metrics(compiled, screened)
        if twin is not None:
            metrics["duplicate_of"] = float(twin.number)
        trial = Trial(
            number=len(self.search.trials),
            config=config,
            status=screened.status,
            phase="screen",
            time_ns=screened.time_ns,
            error=screened.error,
            reference=screened.reference,
            reason=self._reasons[config_key(config)],
            measurement=self.search.measurement(screened.time_ns, screened.protocol, compiled.code),
            metrics=metrics,
            duration_s=time.monotonic() - began,
            started_at=started_at,
            setup=self.search.setup,
        )
        if compiled.identity and twin is None and trial.status in ("ok", "wrong_result"):
            self._identities[compiled.identity] = trial
        self._tell(trial)
        self.search.add(trial)
        if self.search.evaluator.exclusive or trial.status in ("crashed", "timeout"):
            self.search.report()  # after those it takes seconds until the next one is measured

    def _meanwhile(self) -> None:
        """What the device need not wait for where it disturbs no timing."""
        self.search.report()
        self._refill(1)

    def _tell(self, trial: Trial) -> None:
        outcome = _outcome(trial)
        self.strategy.tell(trial.config, outcome)
        if self.course is not None:
            self.course.tell(trial.config, outcome.value)

    def _metrics(self, compiled: Compiled, screened: Screened) -> dict[str, float]:
        metrics = dict(compiled.metrics)
        metrics["compile_s"] = compiled.seconds
        if screened.check_seconds:
            metrics["check_s"] = screened.check_seconds
            metrics["measure_s"] = screened.measure_seconds
        if screened.worst_error is not None:
            metrics["worst_error"] = screened.worst_error
        return metrics | self.search.rates(screened.time_ns)


def _outcome(trial: Trial) -> Outcome:
    return Outcome(None if trial.time_ns is None else trial.time_ns.median, trial.status, trial.measurement)


def _protocol(trial: Trial) -> TimingProtocol | None:
    return None if trial.measurement is None else trial.measurement.protocol
