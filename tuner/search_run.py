"""What the phases of one search share: its trials, its clock, and what a trial says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .evaluate.evaluator import Evaluator
from .ledger import Ledger
from .measure.gauge import Gauge
from .measure.measurement import CodeFacts, Measurement, TimingProtocol
from .measure.statistics import Interval
from .step_clock import StepClock
from .trial import Trial
from .workloads import Problem


class Cancelled(Exception):  # noqa: N818 -- not an error: the caller asked for it
    """The job was asked to stop."""


@dataclass
class SearchRun:
    """One search of ``problem`` as it goes. ``trials``: finished ones of an interrupted run, to which new ones are
    added and told to ``finish`` with the id of the best so far; ``seconds``: of the whole search, None for no limit;
    ``setup``: of its trials; ``clock``: what is done between them."""

    problem: Problem
    evaluator: Evaluator
    gauge: Gauge
    finish: Callable[[Trial, str | None], None]
    cancelled: Callable[[], bool]
    seconds: float | None
    seed: int
    trials: list[Trial] = field(default_factory=list)
    setup: str | None = None
    clock: StepClock = field(default_factory=StepClock)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.trials)
        self._untold: list[tuple[Trial, str | None]] = []
        self._began = time.monotonic() - self.ledger.spent_s

    def add(self, trial: Trial) -> None:
        """``trial`` is finished; :meth:`report` tells of it."""
        self.ledger.add(trial)
        best = self.ledger.incumbent()
        self._untold.append((trial, None if best is None else best.id))

    def report(self) -> None:
        """Tell of the trials that were added, which takes milliseconds: each goes to a disk."""
        while self._untold:
            self.finish(*self._untold.pop(0))

    def check_cancelled(self) -> None:
        """Raises :class:`Cancelled` if the job was asked to stop."""
        if self.cancelled():
            raise Cancelled

    def time_is_up(self, after: float) -> bool:
        """Whether no more than ``after`` is left of the time, in seconds."""
        return self.seconds is not None and self._left(self.seconds) < after

    def seconds_for(self, share: float, usual: float, after: float = 0.0) -> float:
        """What a phase may take: ``share`` of the time that is left, never more than usual. ``after``: seconds of it
        that what follows takes in any case."""
        if self.seconds is None:
            return usual
        return min(usual, max(0.0, self._left(self.seconds) - after) * share)

    def _left(self, seconds: float) -> float:
        return self._began + seconds - time.monotonic()

    def race_seed(self, stage: int) -> int:
        """Of the order of rounds, and in the final of the inputs."""
        return self.seed + 7919 * (stage + 1)

    def measurement(
        self,
        time_ns: Interval | None,
        protocol: TimingProtocol | None,
        code: CodeFacts | None,
        sm_mhz: float | None = None,
        replay_ns: Interval | None = None,
    ) -> Measurement | None:
        """What a time says of a variant; None where there is none."""
        if time_ns is None or protocol is None:
            return None
        return self.gauge.measurement(time_ns, protocol, code, sm_mhz=sm_mhz, replay_ns=replay_ns)

    def rates(self, time_ns: Interval | None) -> dict[str, float]:
        """FLOP/s and bytes/s, by the workload's formulas."""
        if time_ns is None:
            return {}
        seconds = time_ns.median / 1e9
        return {"flop_s": self.problem.flops / seconds, "byte_s": self.problem.bytes / seconds}
