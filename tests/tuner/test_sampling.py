"""Timing on a simulated device: a clock that kernels advance."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from deuteron.tuner.measure import sampling
from deuteron.tuner.measure.sampling import (
    HOST_SAMPLE_NS,
    Rounds,
    Stopwatch,
    first_look,
    interleaved_rounds,
    without_throttled,
)
from deuteron.tuner.measure.statistics import MIN_PAIRS, median_interval, paired_ratio, verdict
from deuteron.tuner.measure.stopping import next_look


@dataclass
class Clocks:
    sm_mhz: int | None


class SimulatedTimer:
    def __init__(self, device: SimulatedDevice) -> None:
        self.device, self.begin, self.end = device, 0.0, 0.0

    def start(self) -> None:
        self.begin, self.held = self.device.now, self.device.held

    def stop(self) -> None:
        self.end = self.device.now
        assert self.device.held == self.held
        self.device.timed_while_held.append(self.held)

    def elapsed_ns(self) -> int:
        return round(self.end - self.begin)


class SimulatedDevice:
    """A kernel takes its warm time, or its cold time when the cache was flushed or another kernel ran before."""

    def __init__(self) -> None:
        self.now, self.resident, self.flushes, self.asked = 0.0, "", 0, 0
        self.mhz: int | None = None
        self.launched: list[str] = []
        self.rests: list[float] = []
        self.timed_while_held: list[bool] = []
        self.held = False

    def kernel(self, name: str, warm: float, cold: float | None = None) -> Callable[[], None]:
        def launch() -> None:
            self.launched.append(name)
            self.now += warm if self.resident == name else (cold or warm)
            self.resident = name

        return launch

    def timer(self) -> SimulatedTimer:
        return SimulatedTimer(self)

    def flush_l2(self) -> None:
        assert not self.held
        self.flushes += 1
        self.resident = ""

    @contextmanager
    def held_back(self, rest_ns: float = 0.0) -> Iterator[None]:
        self.rests.append(rest_ns)
        self.now += rest_ns
        self.held = True
        yield
        self.held = False

    def synchronize(self) -> None: ...

    def clocks(self) -> Clocks:
        self.asked += 1
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


def test_a_gpu_is_held_back_until_all_is_enqueued_and_rests() -> None:
    """For as long as the launch took last; what is warm is timed at once, after an untimed launch."""
    device = SimulatedDevice()
    stopwatch = Stopwatch(device, cold=True)
    look = first_look(stopwatch, device.kernel("k", 1000.0, 1700.0), None)
    assert device.rests == [0.0, *[1700.0] * (look.interval.samples - 1)] and all(device.timed_while_held)
    assert stopwatch.protocol("rounds").text == "device clock, cold cache, rested, rounds"
    device.rests.clear()
    times = itertools.count(1000, 10)

    def slower_and_slower() -> None:
        device.now += next(times)

    first_look(stopwatch, slower_and_slower, None)
    assert device.rests[:4] == [0.0, 1010.0, 1020.0, 1030.0]  # the first launch is not timed
    device.rests.clear()
    rounds = interleaved_rounds(
        stopwatch, [device.kernel("a", 1e3), device.kernel("b", 3e3)], rounds=9, seconds=9, seed=1
    )
    assert sorted(device.rests) == [0.0, 0.0, *[1e3] * 8, *[3e3] * 8] and len(rounds.times[0]) == 9
    assert Counter(device.launched[-18:]) == {"a": 9, "b": 9} and all(device.timed_while_held)

    warm = SimulatedDevice()
    stopwatch = Stopwatch(warm, cold=False)
    interleaved_rounds(stopwatch, [warm.kernel("a", 1e5), warm.kernel("b", 3e5)], rounds=9, seconds=9, seed=1)
    assert not warm.rests and not any(warm.timed_while_held)
    assert Counter(warm.launched[-36:]) == {"a": 18, "b": 18}
    assert stopwatch.protocol("rounds").text == "host clock, warm cache, rounds"


def simulated_time(monkeypatch: pytest.MonkeyPatch, device: SimulatedDevice) -> None:
    """Let the measuring code read the device's clock when it asks how long it took."""
    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: device.now / 1e9))


def test_first_look_gives_up_on_the_hopeless_only(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice()
    simulated_time(monkeypatch, device)
    stopwatch = Stopwatch(device, cold=True)
    bad = first_look(stopwatch, device.kernel("bad", 1.6e6), best_ns=1e6)
    assert bad.hopeless and bad.interval.samples == 3
    slow = first_look(stopwatch, device.kernel("slow", 2e7), best_ns=1e6)
    assert slow.hopeless and slow.interval.samples == 2
    fair = first_look(stopwatch, device.kernel("fair", 1.4e6), best_ns=1e6)
    assert not fair.hopeless and fair.interval.samples >= 5


def test_first_look_outlasts_a_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wake up, or a neighbour, make the first milliseconds slow: that alone is not hopeless."""
    device = SimulatedDevice()
    simulated_time(monkeypatch, device)

    def waking() -> None:
        device.now += 1e6 if device.now < 4e6 else 1e5

    look = first_look(Stopwatch(device, cold=True), waking, best_ns=1e5)
    assert not look.hopeless and look.interval.median == 1e5


def test_first_look_at_long_kernels_ends_when_their_time_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one percent after ten milliseconds, else after fifty."""
    device = SimulatedDevice()
    simulated_time(monkeypatch, device)

    def looked_at(swing: float) -> tuple[int, float]:
        turns = itertools.cycle([1.0, 1 + swing, 1 - swing])

        def launch() -> None:
            device.now += 1.5e6 * next(turns)

        began = device.now
        look = first_look(Stopwatch(device, cold=True), launch, best_ns=1.4e6)
        assert look.interval.low <= 1.5e6 <= look.interval.high
        return look.interval.samples, device.now - began

    steady, soon = looked_at(0.002)
    assert 5 <= steady <= 8 and soon >= 1e7
    shaky, late = looked_at(0.03)
    assert shaky >= 17 and late >= 4.5e7  # rests count


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


def test_all_candidates_take_equally_many_launches_a_sample() -> None:
    """One that met a neighbour while launches were counted would else pay more for each sample than the others."""
    device = SimulatedDevice()
    disturbed = iter([1e6] * 4)

    def unlucky() -> None:
        device.launched.append("unlucky")
        device.now += next(disturbed, 1e4)

    interleaved_rounds(
        Stopwatch(device, cold=False), [device.kernel("a", 1e4), unlucky], rounds=8, seconds=60.0, seed=1
    )
    per_visit = 1 + HOST_SAMPLE_NS // 10_000 + 1
    assert Counter(device.launched[-8 * 2 * per_visit :]) == {"a": 8 * per_visit, "unlucky": 8 * per_visit}


def test_time_ends_the_rounds_but_not_before_a_verdict_is_possible() -> None:
    device = SimulatedDevice()
    rounds = interleaved_rounds(Stopwatch(device, cold=True), [device.kernel("a", 1e6)], rounds=50, seconds=0.0, seed=1)
    assert len(rounds.times[0]) == MIN_PAIRS


def test_rounds_end_at_the_look_that_has_seen_enough() -> None:
    device = SimulatedDevice()
    looks: list[int] = []

    def enough(times: Sequence[Sequence[float]]) -> bool:
        looks.append(len(times[0]))
        return len(times[0]) >= 30

    launches = [device.kernel("a", 1e6), device.kernel("b", 1e6)]
    stopwatch = Stopwatch(device, cold=True)
    rounds = interleaved_rounds(stopwatch, launches, rounds=500, seconds=60.0, seed=1, enough=enough)
    first = next_look(0)
    assert looks == [first, next_look(first), next_look(next_look(first)), len(rounds.times[0])]
    looks.clear()
    interleaved_rounds(stopwatch, launches, rounds=500, seconds=60.0, seed=1, enough=enough, least_seconds=60.0)
    assert looks == []


def test_looks_do_not_see_throttled_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CLOCK_SECONDS", 0.0)
    device = SimulatedDevice()
    device.mhz = 1500
    seen: list[int] = []

    def enough(times: Sequence[Sequence[float]]) -> bool:
        seen.append(len(times[0]))
        return True

    def throttling() -> None:
        device.now += 1e6
        device.mhz = 900 if 8.5e6 < device.now < 12.5e6 else 1500

    interleaved_rounds(Stopwatch(device, cold=True), [throttling], rounds=50, seconds=60.0, seed=1, enough=enough)
    assert seen == [next_look(0) - 2]


def test_clocks_are_asked_for_now_and_then() -> None:
    device = SimulatedDevice()
    device.mhz = 1500
    rounds = interleaved_rounds(
        Stopwatch(device, cold=True), [device.kernel("a", 1e6)], rounds=2000, seconds=60.0, seed=1
    )
    assert rounds.sm_mhz == [1500] * 2000 and 1 <= device.asked < 200


def test_drift_between_rounds_does_not_decide() -> None:
    device = SimulatedDevice()
    rng = random.Random(2)

    def drifting(factor: float) -> Callable[[], None]:
        def launch() -> None:
            device.now += factor * 1e6 * (1 + device.now / 3e8) * (1 + 0.002 * rng.gauss(0, 1))

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
