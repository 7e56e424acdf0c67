"""Taking timings on a device: samples, a quick first look, interleaved rounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from deuteron.compiler.runtime.device import rest_before

from .measurement import TimingProtocol
from .statistics import MIN_PAIRS, Interval, is_precise, median_interval
from .stopping import next_look

Launch: TypeAlias = Callable[[], None]


class LaunchTimer(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def elapsed_ns(self) -> int: ...


class TimedDevice(Protocol):
    """The part of :class:`deuteron.compiler.runtime.devices.Device` that timing needs."""

    def timer(self) -> LaunchTimer: ...

    def flush_l2(self) -> None: ...

    def held_back(self, rest_ns: float = 0.0) -> AbstractContextManager[None]:
        """A context: what is launched in it begins together, once all of it is enqueued and ``rest_ns`` have passed."""
        ...

    def synchronize(self) -> None: ...

    def clocks(self) -> object: ...


# Reading a host clock costs some 50 ns: a tenth of a percent of this. Neighbours take cores away for milliseconds: what
# is compared must follow each other faster than that. Beside two busy processes, one sample of 50 us a visit told
# ratios 3 to 10 times as precisely in the same time as medians of seven samples of 200 us.
HOST_SAMPLE_NS = 50_000
MAX_LAUNCHES = 1000

# A first look outlasts what a neighbour takes a core away for, some 4 ms, and what threads take to wake up.
SCREEN_LEAST_SECONDS = 0.01
SCREEN_MIN_SAMPLES = 5
SCREEN_MAX_SAMPLES = 30
SCREEN_SECONDS = 0.05
SCREEN_LIMIT_SECONDS = 0.5

# Asking for clocks costs up to a millisecond, and they change more slowly than this.
CLOCK_SECONDS = 0.02

# A first look this much slower than the best so far ends: noise of the public tables is under 10 % for all but the
# worst spaces, so nothing that could still win is lost.
HOPELESS = 1.5

# As in nvbench: rounds at less than three quarters of the clock seen elsewhere are throttled and not used.
THROTTLED = 0.75


@dataclass(frozen=True)
class Stopwatch:
    """How one device is timed. ``cold``: the last-level cache is flushed before each launch, and each launch is timed
    alone; otherwise a sample is the mean over enough launches in a row to last :data:`HOST_SAMPLE_NS`.

    On a GPU the device is held back until the host has enqueued event, launch and event, however long that takes it
    beside processes that compile: what the host does stays outside the timing.
    """

    device: TimedDevice
    cold: bool

    def protocol(self, procedure: Literal["first look", "rounds"]) -> TimingProtocol:
        """How its times are taken in this procedure. What is cold is timed by the device itself."""
        return TimingProtocol("device" if self.cold else "host", self.cold, procedure, rested=self.cold)

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

    def sample(self, launch: Launch, launches: int, before: Sequence[float] = ()) -> float:
        """Nanoseconds per launch, mean over ``launches`` in a row; ``before``: earlier samples, the last of which says
        how long the device rests."""
        timer = self.device.timer()
        if self.cold:
            self.device.flush_l2()
        with self.device.held_back(rest_before(before[-1]) if before else 0.0) if self.cold else nullcontext():
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
    """Time a candidate roughly, for :data:`SCREEN_LEAST_SECONDS` at least and then until its median is known precisely
    or much has been seen. Gives up after half of them if all samples so far, two at least, are :data:`HOPELESS` times
    slower than ``best_ns``, the fastest median so far."""
    launches = stopwatch.launches_per_sample(launch)
    samples: list[float] = []
    began = time.perf_counter()
    while True:
        samples.append(stopwatch.sample(launch, launches, samples))
        spent = time.perf_counter() - began
        hopeless = best_ns is not None and min(samples) > HOPELESS * best_ns
        if hopeless and len(samples) >= 2 and spent >= SCREEN_LEAST_SECONDS / 2:
            return FirstLook(median_interval(samples), True)
        if _seen_enough(samples, spent):
            return FirstLook(median_interval(samples), False)


def _seen_enough(samples: Sequence[float], seconds: float) -> bool:
    """Whether a first look is over: short kernels take many samples, long ones few, and fewer where they agree."""
    taken = len(samples)
    if taken >= SCREEN_MIN_SAMPLES and seconds >= SCREEN_LEAST_SECONDS:
        return taken >= SCREEN_MAX_SAMPLES or seconds > SCREEN_SECONDS or is_precise(median_interval(samples))
    return taken >= 3 and seconds > SCREEN_LIMIT_SECONDS


@dataclass(frozen=True, slots=True)
class Rounds:
    """``times[c][r]``: time in ns of candidate c in round r. ``sm_mhz`` per round, None where unknown."""

    times: list[list[float]]
    sm_mhz: list[int | None]


def interleaved_rounds(
    stopwatch: Stopwatch,
    launches: Sequence[Launch],
    *,
    rounds: int,
    seconds: float,
    seed: int,
    enough: Callable[[Sequence[Sequence[float]]], bool] | None = None,
    least_seconds: float = 0.0,
) -> Rounds:
    """Time candidates against each other: every round visits each candidate once, in random order, and takes one
    sample, after an untimed launch where caches stay warm. All take equally many launches a sample, so that what a
    sample costs beside them is the same for all. At least :data:`MIN_PAIRS` rounds, then until ``rounds`` or
    ``seconds`` is spent.

    ``enough`` may end it earlier: it is asked after as many rounds as :func:`~.stopping.next_look` says, not before
    ``least_seconds``, and sees the times so far without throttled rounds.

    Throttled rounds are dropped (at most half of them), so fewer than ``rounds`` may come back.
    """
    rng = random.Random(seed)
    per_sample = max((stopwatch.launches_per_sample(launch) for launch in launches), default=1)
    result = Rounds([[] for _ in launches], [])
    clock = _Clock(stopwatch.device)
    look = next_look(0)
    began = time.perf_counter()
    for done in range(1, rounds + 1):
        for index in rng.sample(range(len(launches)), len(launches)):
            if not stopwatch.cold:
                launches[index]()
            result.times[index].append(stopwatch.sample(launches[index], per_sample, result.times[index]))
        result.sm_mhz.append(clock.sm_mhz())
        spent = time.perf_counter() - began
        if done >= MIN_PAIRS and spent > seconds:
            break
        if enough is not None and done >= look and spent >= least_seconds:
            if enough(without_throttled(result).times):
                break
            look = next_look(done)
    return without_throttled(result)


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


class _Clock:
    """The device's clock, asked for at most once in :data:`CLOCK_SECONDS`."""

    def __init__(self, device: TimedDevice) -> None:
        self._device = device
        self._asked = float("-inf")
        self._mhz: int | None = None

    def sm_mhz(self) -> int | None:
        """In MHz, None where unknown."""
        now = time.perf_counter()
        if now - self._asked >= CLOCK_SECONDS:
            mhz = getattr(self._device.clocks(), "sm_mhz", None)
            self._mhz = mhz if isinstance(mhz, int) else None
            self._asked = now
        return self._mhz
