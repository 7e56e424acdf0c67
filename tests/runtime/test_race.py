"""Races, do_bench and waves of compilation, on a device of virtual time: every launch, flush and wait has a price."""

from __future__ import annotations

import gc
import itertools
import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron
from deuteron.compiler import KernelSource
from deuteron.compiler.errors import OutOfResources
from deuteron.compiler.runtime.device import Clocks, Device, DeviceProperties
from deuteron.compiler.runtime.tuning import benchmark, compile_ahead
from deuteron.compiler.runtime.tuning import race as racing
from deuteron.compiler.runtime.tuning.compile_ahead import waves
from deuteron.compiler.runtime.tuning.config import Config
from deuteron.compiler.runtime.tuning.race import Contestant, RaceOutcome, race
from deuteron.compiler.runtime.tuning.results import FAILED
from deuteron.compiler.runtime.tuning.search import Candidate, Search

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Roughly what an H200 takes: zeroing 240 MB, a launch from Python, waiting for the device.
FLUSH_NS, LAUNCH_NS, WAIT_NS = 65_000, 6_000, 15_000


class VirtualTimer:
    def __init__(self, device: VirtualDevice) -> None:
        self._device = device
        self._begin = self._end = 0

    def start(self) -> None:
        self._begin = self._device.kernels_ns

    def stop(self) -> None:
        self._end = self._device.kernels_ns

    def elapsed_ns(self) -> int:
        return self._end - self._begin


class VirtualDevice(Device):
    """A GPU on paper. ``now`` is its wall clock; the part of it in kernels is ``kernels_ns``."""

    name = "virtual"
    target = "cuda:90a"

    def __init__(self) -> None:
        self.wall_ns = self.kernels_ns = 0
        self.launches = self.flushes = self.waits = self.timers = 0
        self.held, self.rests = False, list[float]()

    def kernel(self, ns: Callable[[], float]) -> Callable[[], None]:
        """A launch whose duration is decided each time."""

        def launch() -> None:
            spent = round(ns())
            self.launches += 1
            self.kernels_ns += spent
            self.wall_ns += spent + LAUNCH_NS

        return launch

    def now(self) -> int:
        return self.wall_ns

    def synchronize(self) -> None:
        self.waits += 1
        self.wall_ns += WAIT_NS

    def flush_l2(self) -> None:
        self.flushes += 1
        self.wall_ns += FLUSH_NS

    @contextmanager
    def held_back(self, rest_ns: float = 0.0) -> Iterator[None]:
        self.rests.append(rest_ns)
        self.wall_ns += round(rest_ns)
        self.held = True
        yield
        self.held = False

    def timer(self) -> VirtualTimer:
        self.timers += 1
        return VirtualTimer(self)

    @property
    def properties(self) -> DeviceProperties:
        return DeviceProperties("virtual", "cuda")

    def array(self, source: np.ndarray) -> Any:
        raise AssertionError("timing copies no arrays")

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        raise AssertionError("timing allocates no arrays")

    def clocks(self) -> Clocks | None:
        return None


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> VirtualDevice:
    made = VirtualDevice()
    monkeypatch.setattr(racing, "_now", made.now)
    monkeypatch.setattr(benchmark, "_now", made.now)
    return made


def noisy(rng: random.Random, ns: float, spread: float = 0.02) -> Callable[[], float]:
    """Durations as a GPU gives them: a narrow bulk, and one launch in twenty much slower."""
    return lambda: ns * (rng.gauss(1, spread) + (rng.expovariate(2) if rng.random() < 0.05 else 0))


def spent_ms(
    device: VirtualDevice, launches: Sequence[Callable[[], object]], **options: Any
) -> tuple[RaceOutcome, float]:
    """The outcome, and virtual milliseconds of wall time, the launches before the race included."""
    begin = device.wall_ns
    for launch in launches:
        launch()
    outcome = race(launches, device, warmup_ms=25, rep_ms=100, **options)
    return outcome, (device.wall_ns - begin) / 1e6


@pytest.mark.parametrize("ns", [2_000, 200_000, 20_000_000])
@pytest.mark.parametrize("count", [2, 6, 20])
@pytest.mark.parametrize("reset_ns", [0, 300_000])
def test_races_keep_to_the_budget(device: VirtualDevice, ns: float, count: int, reset_ns: int) -> None:
    # Alternately a little faster and slower, so that nobody is ever behind with confidence.
    swings = [iter(range(i, 10**9)) for i in range(count)]
    launches = [device.kernel(lambda s=s: ns * (0.9 + 0.2 * (next(s) % 2))) for s in swings]

    def reset() -> None:
        device.wall_ns += reset_ns

    outcome, spent = spent_ms(device, launches, before=reset)
    assert spent <= (25 + count * 100) * 1.01  # a hundredth: rounds are counted by what those before them took
    assert len(outcome.finalists) == count
    each = (2.0 if ns < 4e6 else 1.0) * ns / 1e6 + (FLUSH_NS + LAUNCH_NS + reset_ns) / 1e6
    most = min(100 / each, 2_000)
    assert all(0.6 * most - 2 <= len(times) <= 1.3 * most for times in outcome.times)  # the budget is used
    assert device.flushes == device.launches - count + 1
    assert device.waits <= 20 + device.launches / 900


def test_the_device_rests_before_all_that_is_timed_and_holds_launches_back(device: VirtualDevice) -> None:
    """For as long as the launch takes, as soon as that is known: after the round that warms up."""
    held: list[bool] = []

    def noted(ns: float) -> Callable[[], None]:
        launch = device.kernel(lambda: ns)

        def call() -> None:
            held.append(device.held)
            launch()

        return call

    race([noted(200_000.0), noted(300_000.0)], device, warmup_ms=0, rep_ms=50)
    assert device.rests[:2] == [0, 0] and device.rests[2:] == [200_000, 300_000] * (len(device.rests) // 2 - 1)
    assert all(held) and len(held) == len(device.rests) > 20


@pytest.mark.parametrize("ns", [300_000, 1_000_000, 3_000_000])
def test_the_warm_up_counts_the_rests_that_come(device: VirtualDevice, ns: float) -> None:
    """The round that tells what rounds cost has none."""
    runners = [Contestant(device.kernel(lambda: ns)) for _ in range(3)]
    rounds, began = racing._Rounds(device, None), device.wall_ns
    racing._warm_up(runners, rounds, 25e6)
    assert device.wall_ns - began < 27e6


def test_each_is_timed_three_times_however_long_it_takes(device: VirtualDevice) -> None:
    slow = [device.kernel(lambda: 1e9), device.kernel(lambda: 1.2e9)]
    outcome, _ = spent_ms(device, slow)
    assert [len(t) for t in outcome.times] == [3, 3]
    assert outcome.finalists == [0, 1]


def test_a_race_without_a_limit_ends(device: VirtualDevice) -> None:
    """``rep=float("inf")``, as do_bench takes it, was Python's OverflowError."""
    calls = [device.kernel(lambda: 1e6), device.kernel(lambda: 1e6)]
    outcome = race(calls, device, warmup_ms=math.inf, rep_ms=math.inf)
    assert {len(times) for times in outcome.times} == {racing._MOST}


def test_those_clearly_behind_leave_early(device: VirtualDevice) -> None:
    rng = random.Random(1)
    factors = [1.0, 1.0, 1.05, 1.3, 2.0, 10.0]
    launches = [device.kernel(noisy(rng, 200_000 * f)) for f in factors]
    outcome, spent = spent_ms(device, launches)
    rounds = [len(t) for t in outcome.times]
    assert rounds[0] >= rounds[2] >= rounds[3] >= rounds[4]
    assert max(rounds[4:]) <= 5  # hopeless
    assert rounds[3] <= 100  # of the 370 that the budget holds: behind, as the first tenth of a second shows
    assert set(outcome.finalists) <= {0, 1}
    assert spent < 0.5 * 6 * 125
    assert all(outcome.times)  # those that left have times to show


def test_who_has_used_up_the_time_stays_a_candidate(device: VirtualDevice) -> None:
    # All swing so widely that nobody is behind with confidence, but the slower ones need more time a round.
    swings, means = [itertools.cycle((0.4, 1.0, 1.6)) for _ in range(3)], [5e6, 5.8e6, 6.6e6]
    launches = [device.kernel(lambda s=s, m=m: m * next(s)) for s, m in zip(swings, means, strict=True)]
    outcome, _ = spent_ms(device, launches)
    rounds = [len(t) for t in outcome.times]
    assert rounds[0] >= rounds[1] > rounds[2] >= 8  # the last one alone has nobody to be compared with
    assert sorted(outcome.finalists) == [0, 1, 2]


def test_a_tie_is_called_before_the_budget_ends(device: VirtualDevice) -> None:
    launches = [device.kernel(lambda: 200_000.0) for _ in range(6)]
    _, spent = spent_ms(device, launches)
    assert 125 <= spent < 200  # of 625


def test_the_fastest_wins_in_spite_of_noise(device: VirtualDevice) -> None:
    lost = 0
    for seed in range(60):
        rng = random.Random(seed)
        durations = [rng.uniform(1.0, 1.5) * 50_000 for _ in range(20)]
        durations[rng.randrange(20)] = 0.97 * min(durations)
        outcome, _ = spent_ms(device, [device.kernel(noisy(rng, d, 0.05)) for d in durations])
        lost += durations[outcome.finalists[0]] > 1.005 * min(durations)
    assert lost == 0


def test_drift_meets_all_alike(device: VirtualDevice) -> None:
    """Clocks fall by a fifth in the course of the race: what was timed early must not win by that."""
    rng = random.Random(3)

    def drifting(ns: float) -> Callable[[], float]:
        return lambda: ns * rng.gauss(1, 0.02) * (1 + 0.2 * min(device.launches / 800, 1))

    for _ in range(10):
        device.launches = 0
        launches = [device.kernel(drifting(ns)) for ns in (104_000, 103_000, 100_000, 104_000)]
        outcome, _ = spent_ms(device, launches)
        assert outcome.finalists[0] == 2


def test_rounds_alternate_and_one_alone_is_quick(device: VirtualDevice) -> None:
    order: list[int] = []
    launches = [device.kernel(lambda i=i: order.append(i) or 1e6) for i in range(3)]
    race(launches, device, warmup_ms=0, rep_ms=20)
    assert order[:9] == [0, 1, 2] * 3
    order.clear()
    outcome = race(launches[:1], device, warmup_ms=0, rep_ms=20)
    assert len(order) == 4 and len(outcome.times[0]) == 3


def test_intervals_hold_the_median(device: VirtualDevice) -> None:
    rng = random.Random(5)
    for count in (8, 12, 100):
        inside = 0
        for _ in range(2_000):
            low, high = Contestant(print, [rng.expovariate(1) for _ in range(count)]).interval()
            inside += low <= np.log(2) <= high
        assert inside >= 0.98 * 2_000
    assert Contestant(print, [1.0] * 7).interval() == (0.0, float("inf"))


@pytest.mark.parametrize(("ns", "most"), [(2_000, 125), (200_000, 125), (20_000_000, 145), (1e9, 5_100)])
def test_do_bench_counts_flushes(device: VirtualDevice, ns: float, most: float) -> None:
    """Beyond 25 + 100 ms: the first launch, which compiles, and what three timed launches take."""
    times = deuteron.testing.do_bench(device.kernel(lambda: ns), return_mode="all", device=device)
    assert isinstance(times, list) and len(times) >= 3
    assert times == pytest.approx([ns / 1e6] * len(times))
    assert device.wall_ns / 1e6 <= most
    assert device.wall_ns / 1e6 >= 0.7 * most or ns == 1e9


def test_waves_come_in_order_with_errors() -> None:
    def wrong() -> None:
        raise OutOfResources("shared memory", 3, 2)

    (only,) = waves({"a": lambda: 1, "b": wrong, "c": lambda: 2}, overlap=False)
    assert list(only) == ["a", "b", "c"]
    assert only["a"] is None and isinstance(only["b"], OutOfResources)
    assert list(waves({}, overlap=True)) == []


def test_a_straggler_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_ahead, "usable_cores", lambda: 4)
    release = threading.Event()
    tasks: dict[int, Callable[[], object]] = {i: (lambda: None) for i in range(7)}
    tasks[3] = release.wait
    found = waves(tasks, overlap=True)
    assert list(next(found)) == [0, 1, 2, 4, 5, 6]
    release.set()
    assert [list(w) for w in found] == [[3]]


def test_leaving_early_drops_what_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    hold = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(False, cancel_futures=cancel_futures)
            hold.set()
            super().shutdown(wait)

    monkeypatch.setattr(compile_ahead, "usable_cores", lambda: 1)
    monkeypatch.setattr(compile_ahead, "ThreadPoolExecutor", Pool)
    tasks: dict[int, Callable[[], object]] = {i: (lambda i=i: begun.append(i)) for i in range(8)}
    tasks[6] = hold.wait
    found = waves(tasks, overlap=True)
    assert list(next(found)) == [0, 1, 2, 3, 4, 5]
    found.close()
    assert begun == [0, 1, 2, 3, 4, 5]


def test_threads_compile_the_same_code() -> None:
    source = KernelSource.from_file(EXAMPLES / "matmul.py", "matmul_kernel")
    strides = {"stride_am": "i32:16", "stride_ak": "i32:1", "stride_bk": "i32:16", "stride_bn": "i32:1"}
    strides |= {"stride_cm": "i32:16", "stride_cn": "i32:1"}
    signature = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16:16") | dict.fromkeys("MNK", "i32:16") | strides
    texts: dict[bool, dict[int, object]] = {True: {}, False: {}}

    def compile(i: int, threaded: bool) -> None:
        blocks = {"BLOCK_SIZE_M": 16 << i % 3, "BLOCK_SIZE_N": 16 << i // 3, "BLOCK_SIZE_K": 32}
        constants = {**blocks, "GROUP_SIZE_M": 8, "ACTIVATION": "leaky_relu"}
        made = deuteron.compile(source, signature, constants, "cuda:90a", num_warps=2, stop_after="ptx")
        texts[threaded][i] = made.asm["ptx"]

    for i in range(6):
        compile(i, False)
    tasks = {i: (lambda i=i: compile(i, True)) for i in range(6)}
    assert all(error is None for wave in waves(tasks, overlap=False) for error in wave.values())
    assert texts[True] == texts[False]
    assert len(set(texts[True].values())) == 6


def configs(count: int) -> list[Config]:
    return [Config({"BLOCK": 1 << i}) for i in range(count)]


def test_a_search_times_stragglers_against_the_best(device: VirtualDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last to compile is the fastest: it is timed when it comes, beside the best of the first."""
    monkeypatch.setattr(compile_ahead, "usable_cores", lambda: 8)
    ran: list[int] = []
    release = threading.Event()

    def launch(i: int, ns: float) -> Callable[[], object]:
        def duration() -> float:
            ran.append(i)
            release.set()
            return ns

        return device.kernel(duration)

    names = configs(5)
    durations = [30_000, 20_000, 40_000, 10_000, 30_000]
    candidates = {c: Candidate(lambda: None, launch(i, durations[i])) for i, c in enumerate(names)}
    candidates[names[3]] = Candidate(release.wait, candidates[names[3]].call)
    search = Search(device, warmup_ms=25, rep_ms=100)
    search.run(candidates)
    assert ran[:4] == [0, 1, 2, 4]
    assert search.finalists == [names[3]]
    assert search.timings[names[3]][0] == pytest.approx(0.01)
    assert set(search.timings) == set(names)
    assert set(ran[ran.index(3) :]) == {1, 3}


def test_a_search_notes_failures_and_raises_errors(device: VirtualDevice) -> None:
    def too_big() -> None:
        raise OutOfResources("shared memory", 3, 2)

    def wrong() -> None:
        raise ZeroDivisionError

    good, big, late = configs(3)
    fine = device.kernel(lambda: 1e5)
    search = Search(device, warmup_ms=25, rep_ms=100)
    search.run({big: Candidate(too_big, fine), good: Candidate(lambda: None, fine), late: Candidate(print, too_big)})
    assert search.timings[big] == search.timings[late] == FAILED
    assert set(search.failures) == {big, late}
    assert "shared memory" in search.failures[big]
    assert search.finalists == [good]
    with pytest.raises(ZeroDivisionError):
        Search(device, warmup_ms=25, rep_ms=100).run({good: Candidate(wrong, fine)})


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_not_collected_while_timing(collects: bool) -> None:
    """And is again afterwards, if it was before, also where the function fails."""
    seen = []

    def fails_in_the_end() -> None:
        seen.append(gc.isenabled())
        if len(seen) > 20:
            raise ZeroDivisionError

    was = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        deuteron.testing.do_bench(lambda: seen.append(gc.isenabled()), warmup=0, rep=1, device="cpu")
        assert not any(seen[1:]) and gc.isenabled() == collects
        seen.clear()
        with pytest.raises(ZeroDivisionError):
            deuteron.testing.do_bench(fails_in_the_end, warmup=0, rep=1000, device="cpu")
        assert gc.isenabled() == collects
    finally:
        (gc.enable if was else gc.disable)()
