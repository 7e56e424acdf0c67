"""Timing on a simulated device: a clock that kernels advance."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from deuteron.tuner.measure.sampling import (
    HOST_SAMPLE_NS,
    Rounds,
    Stopwatch,
    first_look,
    interleaved_rounds,
    without_throttled,
)
from deuteron.tuner.measure.statistics import median_interval, paired_ratio, verdict


@dataclass
class Clocks:
    sm_mhz: int | None


class SimulatedTimer:
    def __init__(self, device: SimulatedDevice) -> None:
        self.device, self.begin, self.end = device, 0.0, 0.0

    def start(self) -> None:
        self.begin = self.device.now

    def stop(self) -> None:
        self.end = self.device.now

    def elapsed_ns(self) -> int:
        return round(self.end - self.begin)


class SimulatedDevice:
    """A kernel takes its warm time, or its cold time when the cache was flushed or another kernel ran before."""

    def __init__(self) -> None:
        self.now, self.resident, self.flushes = 0.0, "", 0
        self.mhz: int | None = None
        self.launched: list[str] = []

    def kernel(self, name: str, warm: float, cold: float | None = None) -> Callable[[], None]:
        def launch() -> None:
            self.launched.append(name)
            self.now += warm if self.resident == name else (cold or warm)
            self.resident = name

        return launch

    def timer(self) -> SimulatedTimer:
        return SimulatedTimer(self)

    def flush_l2(self) -> None:
        self.flushes += 1
        self.resident = ""

    def synchronize(self) -> None: ...

    def clocks(self) -> Clocks:
        return Clocks(self.mhz)


def test_short_kernels_are_timed_many_at_once() -> None:
    device = SimulatedDevice()
    stopwatch = Stopwatch(device, cold=False)
    launch = device.kernel("k", 900.0)
    launches = stopwatch.launches_per_sample(launch)
    assert launches * 900 >= HOST_SAMPLE_NS
    assert stopwatch.sample(launch, launches) == 900.0
    assert stopwatch.launches_per_sample(device.kernel("long", 5e6)) == 1


def test_cold_timing_flushes_before_every_launch() -> None:
    device = SimulatedDevice()
    look = first_look(Stopwatch(device, cold=True), device.kernel("k", 1000.0, 1700.0), None)
    assert look.interval.median == 1700.0
    assert device.flushes == look.interval.samples
    warm = first_look(Stopwatch(device, cold=False), device.kernel("k", 1000.0, 1700.0), None)
    assert warm.interval.median == 1000.0


def test_first_look_gives_up_on_the_hopeless_only() -> None:
    device = SimulatedDevice()
    stopwatch = Stopwatch(device, cold=True)
    bad = first_look(stopwatch, device.kernel("bad", 2000.0), best_ns=1000.0)
    assert bad.hopeless and bad.interval.samples == 2
    fair = first_look(stopwatch, device.kernel("fair", 1400.0), best_ns=1000.0)
    assert not fair.hopeless and fair.interval.samples >= 5


def test_rounds_visit_every_candidate_in_changing_order_with_a_warm_up() -> None:
    device = SimulatedDevice()
    names = ("a", "b", "c")
    launches = [device.kernel(n, 3e5 + 1e5 * i, 9e9) for i, n in enumerate(names)]
    rounds = interleaved_rounds(Stopwatch(device, cold=False), launches, rounds=12, seconds=60.0, seed=1)
    # the untimed launch of each visit takes the cold time, so no sample sees it
    assert rounds.times == [[3e5] * 12, [4e5] * 12, [5e5] * 12]
    changes = [n for i, n in enumerate(device.launched) if i == 0 or device.launched[i - 1] != n]
    orders = {"".join(changes[-3 * k - 3 : len(changes) - 3 * k]) for k in range(6)}
    assert len(orders) > 1


def test_time_ends_the_rounds_but_not_before_six() -> None:
    device = SimulatedDevice()
    rounds = interleaved_rounds(Stopwatch(device, cold=True), [device.kernel("a", 1e6)], rounds=50, seconds=0.0, seed=1)
    assert len(rounds.times[0]) == 6


def test_drift_between_rounds_does_not_decide() -> None:
    device = SimulatedDevice()
    rng = random.Random(2)

    def drifting(factor: float) -> Callable[[], None]:
        def launch() -> None:
            device.now += factor * 1e6 * (1 + device.now / 3e9) * (1 + 0.002 * rng.gauss(0, 1))

        return launch

    rounds = interleaved_rounds(
        Stopwatch(device, cold=False), [drifting(1.0), drifting(0.97)], rounds=20, seconds=5, seed=3
    )
    base, challenger = rounds.times
    assert verdict(paired_ratio(challenger, base)) == "FASTER"
    assert median_interval(challenger).high > median_interval(base).low  # unpaired, they overlap


def test_throttled_rounds_are_dropped_unless_that_leaves_too_few() -> None:
    times = [[1.0, 9.0, 2.0, 3.0], [4.0, 9.0, 5.0, 6.0]]
    kept = without_throttled(Rounds(times, [1500, 900, 1480, None]))
    assert kept.times == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    mostly = Rounds(times, [1500, 900, 900, 900])
    assert without_throttled(mostly) is mostly
    unknown = Rounds(times, [None] * 4)
    assert without_throttled(unknown) is unknown
