"""Taking timings on a device: samples, a quick first look, interleaved rounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from .statistics import Interval, median_interval

Launch: TypeAlias = Callable[[], None]


class LaunchTimer(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def elapsed_ns(self) -> int: ...


class TimedDevice(Protocol):
    """The part of :class:`deuteron.compiler.runtime.devices.Device` that timing needs."""

    def timer(self) -> LaunchTimer: ...

    def flush_l2(self) -> None: ...

    def synchronize(self) -> None: ...

    def clocks(self) -> object: ...


# Reading a host clock costs some 50 ns and waking threads some us: samples this long keep both under a percent.
HOST_SAMPLE_NS = 200_000
MAX_LAUNCHES = 1000

SCREEN_MIN_SAMPLES = 5
SCREEN_MAX_SAMPLES = 30
SCREEN_SECONDS = 0.05
SCREEN_LIMIT_SECONDS = 0.5

MIN_VISIT_SAMPLES = 3
MAX_VISIT_SAMPLES = 15

# A first look this much slower than the best so far ends: noise of the public tables is under 10 % for all but the
# worst spaces, so nothing that could still win is lost.
HOPELESS = 1.5

# As in nvbench: rounds at less than three quarters of the clock seen elsewhere are throttled and not used.
THROTTLED = 0.75


@dataclass(frozen=True)
class Stopwatch:
    """How one device is timed. ``cold``: the last-level cache is flushed before each launch, and each launch is timed
    alone; otherwise a sample is the mean over enough launches in a row to last :data:`HOST_SAMPLE_NS`.

    On a GPU the flush is queued before the first event, so that the device is busy while the host enqueues event,
    launch and event: host overhead stays outside the timing.
    """

    device: TimedDevice
    cold: bool

    def launches_per_sample(self, launch: Launch) -> int:
        """Launches that make one sample long enough; runs the kernel a few times, which warms it up."""
        launch()
        self.device.synchronize()
        if self.cold:
            return 1
        launches = 1
        while launches < MAX_LAUNCHES:
            elapsed = self.sample(launch, launches) * launches
            if elapsed >= HOST_SAMPLE_NS:
                break
            grow = HOST_SAMPLE_NS / max(elapsed, HOST_SAMPLE_NS / 10)
            launches = min(MAX_LAUNCHES, max(launches + 1, int(launches * grow) + 1))
        return launches

    def sample(self, launch: Launch, launches: int) -> float:
        """Nanoseconds per launch, mean over ``launches`` in a row."""
        timer = self.device.timer()
        if self.cold:
            self.device.flush_l2()
        timer.start()
        for _ in range(launches):
            launch()
        timer.stop()
        # A clock that did not advance: shorter than its resolution, and logarithms of it must exist.
        return max(timer.elapsed_ns(), 1) / launches


@dataclass(frozen=True, slots=True)
class FirstLook:
    """Outcome of a screening: the interval, and whether it ended early because the candidate is hopeless."""

    interval: Interval
    hopeless: bool


def first_look(stopwatch: Stopwatch, launch: Launch, best_ns: float | None) -> FirstLook:
    """Time a candidate roughly. Stops after two samples that are both :data:`HOPELESS` times slower than ``best_ns``,
    the fastest median so far."""
    launches = stopwatch.launches_per_sample(launch)
    samples: list[float] = []
    began = time.perf_counter()
    while len(samples) < SCREEN_MAX_SAMPLES:
        samples.append(stopwatch.sample(launch, launches))
        spent = time.perf_counter() - began
        hopeless = best_ns is not None and len(samples) >= 2 and min(samples) > HOPELESS * best_ns
        if hopeless:
            return FirstLook(median_interval(samples), True)
        if len(samples) >= SCREEN_MIN_SAMPLES and spent > SCREEN_SECONDS:
            break
        if len(samples) >= 3 and spent > SCREEN_LIMIT_SECONDS:
            break
    return FirstLook(median_interval(samples), False)


@dataclass(frozen=True, slots=True)
class Rounds:
    """``times[c][r]``: median time in ns of candidate c in round r. ``sm_mhz`` per round, None where unknown."""

    times: list[list[float]]
    sm_mhz: list[int | None]


def interleaved_rounds(
    stopwatch: Stopwatch,
    launches: Sequence[Launch],
    *,
    rounds: int,
    seconds: float,
    seed: int,
) -> Rounds:
    """Time candidates against each other: every round visits each candidate once, in random order, launches it once
    untimed and takes the median of some samples. At least 6 rounds, then until ``rounds`` or ``seconds`` is spent;
    short kernels get more samples a visit, so that the seconds are used. How long it takes does not depend on who is
    ahead: stopping when a difference shows would find one too often.

    Throttled rounds are dropped (at most half of them), so fewer than ``rounds`` may come back.
    """
    rng = random.Random(seed)
    per_sample = [stopwatch.launches_per_sample(launch) for launch in launches]
    visit_ns = seconds * 1e9 / (rounds * max(1, len(launches)))
    samples = [
        _samples_per_visit(visit_ns / (stopwatch.sample(launch, count) * count))
        for launch, count in zip(launches, per_sample, strict=True)
    ]
    result = Rounds([[] for _ in launches], [])
    began = time.perf_counter()
    for done in range(rounds):
        if done >= 6 and time.perf_counter() - began > seconds:
            break
        for index in rng.sample(range(len(launches)), len(launches)):
            launches[index]()
            taken = [stopwatch.sample(launches[index], per_sample[index]) for _ in range(samples[index])]
            result.times[index].append(sorted(taken)[len(taken) // 2])
        result.sm_mhz.append(_sm_mhz(stopwatch.device))
    return without_throttled(result)


def _samples_per_visit(fitting: float) -> int:
    """An odd number of samples near what fits, so that their median is one of them."""
    return min(MAX_VISIT_SAMPLES, max(MIN_VISIT_SAMPLES, int(fitting) // 2 * 2 + 1))


def without_throttled(rounds: Rounds) -> Rounds:
    """Drop the rounds whose clock was below :data:`THROTTLED` of the highest; all stay if that is more than half."""
    known = [mhz for mhz in rounds.sm_mhz if mhz is not None]
    if not known:
        return rounds
    floor = THROTTLED * max(known)
    keep = [i for i, mhz in enumerate(rounds.sm_mhz) if mhz is None or mhz >= floor]
    if len(keep) * 2 < len(rounds.sm_mhz):
        return rounds
    return Rounds([[times[i] for i in keep] for times in rounds.times], [rounds.sm_mhz[i] for i in keep])


def _sm_mhz(device: TimedDevice) -> int | None:
    mhz = getattr(device.clocks(), "sm_mhz", None)
    return mhz if isinstance(mhz, int) else None
