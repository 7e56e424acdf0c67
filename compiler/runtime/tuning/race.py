"""Several launches timed against each other in alternating rounds, within a budget of wall time.

Rounds alternate, so that a drift of the clocks meets all contestants alike. They are queued in growing batches with one
wait for the device after each; after a batch those that are clearly behind leave, and so do those that have used up
their time, which remain candidates for the choice. So most of the time goes to the closest ones.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..device import Device, Timer, rest_before

#: A contestant whose median is this many times the leader's has lost, whatever the noise.
_HOPELESS = 1.5
#: The same while warming up, where there may be one time of each.
_HOPELESS_COLD = 3.0
#: A gain of less than this part is not worth more timing.
_TIE = 0.005
#: Timed rounds at least, whatever they take; and at most, when medians are exact enough for any choice.
_FEWEST, _MOST = 3, 2_000
#: Launches between two waits for the device: about what a driver queues before launching blocks.
_BATCH = 1_000
#: Half the width, in ranks, of a 99 % interval of the median of n values is this times sqrt(n) (normal approximation).
_RANKS = 1.29
#: Below this number the smallest and the largest value hold the median with less than 99 %: 1 - 2**(1 - n).
_FEWEST_FOR_INTERVAL = 8

_now = time.perf_counter_ns


@dataclass(eq=False)
class Contestant:
    """One of the launches: its times in milliseconds, and the wall time spent on it and needed by a round of it, with
    the device's rest before it."""

    call: Callable[[], object]
    times: list[float] = field(default_factory=list)
    spent_ns: float = 0.0
    round_ns: float = 0.0
    rest_ns: float = 0.0

    def affords(self, budget_ns: float) -> int:
        """Rounds that a budget of wall time leaves, up to as many as there are."""
        return int(min((budget_ns - self.spent_ns) / max(self.round_ns, 1.0), _MOST))

    def median(self) -> float:
        """Median of the measured times in milliseconds; raises statistics.StatisticsError before the first."""
        return statistics.median(self.times)

    def interval(self) -> tuple[float, float]:
        """Bounds of the median with 99 % confidence, by order statistics: no assumption on the noise."""
        count = len(self.times)
        if count < _FEWEST_FOR_INTERVAL:
            return 0.0, math.inf
        ordered = sorted(self.times)
        reach = _RANKS * math.sqrt(count)
        return ordered[max(math.floor(count / 2 - reach) - 1, 0)], ordered[min(math.ceil(count / 2 + reach), count - 1)]


@dataclass(frozen=True)
class RaceOutcome:
    """What a race found: the times of each call in milliseconds, and the calls (by index) that nobody left behind,
    fastest median first."""

    times: list[list[float]]
    finalists: list[int]


def race(
    calls: Sequence[Callable[[], object]],
    device: Device,
    *,
    warmup_ms: float,
    rep_ms: float,
    before: Callable[[], object] | None = None,
) -> RaceOutcome:
    """Time ``calls``, each launched once before, in alternating rounds until the order of the fastest is known.

    On a GPU every launch finds the L2 cache flushed and the device rested (:func:`~..device.rest_before`), and begins
    once it is in the device's queue with both events that time it. ``warmup_ms`` of wall time passes before the timed
    rounds, once for all, because alternating keeps the device warm. No call takes more wall time than ``rep_ms`` and
    its part of ``warmup_ms``, with everything that belongs to it (flushes, rests, ``before``, launching, and the launch
    that the caller made), except that each is timed three times at least. ``before`` runs untimed before each launch.
    """
    budget_ns = (warmup_ms / len(calls) + rep_ms) * 1e6
    runners = [Contestant(call) for call in calls]
    rounds = _Rounds(device, before)
    running, spent = _warm_up(runners, rounds, warmup_ms * 1e6), []
    done, look = 0, _FEWEST
    while done < _FEWEST or (len(running) > 1 and done < _MOST):
        affordable = min(r.affords(budget_ns) for r in running)
        count = min(look - done, _BATCH // len(running) + 1, max(affordable, _FEWEST - done, 1))
        rounds.run(running, count)
        done += count
        if done == look:
            look = min(look + look // 2, _MOST)
            # Noise comes in bursts, so the evidence of a moment is not enough, however many launches fit in it.
            long_enough = rounds.wall_ns >= (warmup_ms + rep_ms) * 1e6
            running = _still_in_it(running) if long_enough else _not_hopeless(running, _HOPELESS)
        if done >= _FEWEST:
            spent += [r for r in running if r.affords(budget_ns) < 1]
            running = [r for r in running if r not in spent]
    finalists = sorted(_still_in_it(running + spent), key=Contestant.median)
    return RaceOutcome([r.times for r in runners], [runners.index(r) for r in finalists])


def _warm_up(runners: Sequence[Contestant], rounds: _Rounds, warmup_ns: float) -> list[Contestant]:
    """One round, which tells what rounds cost, and as many more as fit; the launch before the race counts as one too.

    Returns those that are not hopeless; only the others keep their times."""
    rounds.run(runners, 1)
    for runner in runners:
        runner.spent_ns *= 2
    all_ns = sum(r.round_ns for r in runners)
    more = int(min(warmup_ns / max(all_ns, 1.0) - 2, _BATCH // len(runners) + 1))
    if more > 0:
        rounds.run(runners, more)
    running = _not_hopeless(runners, _HOPELESS_COLD)
    for runner in running:
        runner.times.clear()
    return running


def _still_in_it(running: Sequence[Contestant]) -> list[Contestant]:
    """Those that may yet turn out to be faster than the leader by more than a tie."""
    leader = min(running, key=Contestant.median)
    worst = leader.interval()[1]
    close = _not_hopeless(running, _HOPELESS)
    return [r for r in close if r is leader or r.interval()[0] < (1 - _TIE) * worst]


def _not_hopeless(running: Sequence[Contestant], factor: float) -> list[Contestant]:
    limit = factor * min(r.median() for r in running)
    return [r for r in running if r.median() <= limit]


class _Rounds:
    """Runs rounds on a device and keeps the books of who took how much wall time. Timers are used again."""

    def __init__(self, device: Device, before: Callable[[], object] | None) -> None:
        self._device = device
        self._before = before
        self._flush = device.name != "cpu"
        self._timers: list[Timer] = []
        self.wall_ns = 0.0
        if self._flush:
            device.flush_l2()  # the first one allocates
            device.synchronize()

    def run(self, runners: Sequence[Contestant], count: int) -> None:
        """Launch all ``runners`` ``count`` times in turns; wait once."""
        begin = _now()
        timers = self._launch(runners, count)
        self._device.synchronize()
        own_ns = []
        for i, runner in enumerate(runners):
            times = [t.elapsed_ns() for t in timers[i :: len(runners)]]
            runner.times += [ns / 1e6 for ns in times]
            own_ns.append(runner.rest_ns + sum(times) / count)
        wall_ns = _now() - begin
        self.wall_ns += wall_ns
        shared_ns = max(wall_ns / count - sum(own_ns), 0.0) / len(runners)
        for runner, own in zip(runners, own_ns, strict=True):
            runner.spent_ns += (own + shared_ns) * count
            rested = runner.rest_ns
            if self._flush:
                runner.rest_ns = rest_before(statistics.median(runner.times[-count:]) * 1e6)
            runner.round_ns = own + shared_ns + runner.rest_ns - rested

    def _launch(self, runners: Sequence[Contestant], count: int) -> list[Timer]:
        device, before, flush = self._device, self._before, self._flush
        needed = count * len(runners)
        self._timers += [device.timer() for _ in range(needed - len(self._timers))]
        timers = iter(self._timers)
        for _ in range(count):
            for runner in runners:
                if before:
                    before()
                if flush:
                    device.flush_l2()
                timer = next(timers)
                with device.held_back(runner.rest_ns):
                    timer.start()
                    runner.call()
                    timer.stop()
        return self._timers[:needed]
