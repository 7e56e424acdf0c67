"""Timing of launches: one function alone, or several against each other in alternating rounds."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from ..errors import LaunchError
from .devices import Device, Timer, default_device, get_device

ReturnMode = Literal["mean", "median", "min", "max", "all"]

#: Launches whose mean gives the first estimate of a duration.
_ESTIMATE_LAUNCHES = 5
#: Bounds on the number of timed launches, whatever their duration.
_FEWEST, _MOST = 3, 10_000
#: In a race, one that is this much slower than the best after the first rounds is not timed further.
_HOPELESS = 1.5
_FIRST_ROUNDS = 5


class Clearable(Protocol):
    """A torch tensor with a gradient."""

    grad: object


def benchmark_device() -> Device:
    """Where timing happens unless a device is named: DEUTERON_DEVICE, else the GPU once this process uses one."""
    from .. import knobs
    from .cuda_driver import contexts_in_use

    if knobs.device.get():
        return default_device()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return get_device(f"cuda:{torch.cuda.current_device()}")
    used = contexts_in_use()
    return get_device(f"cuda:{used[0]}" if used else "cpu")


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Clearable] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: ReturnMode = "mean",
    *,
    device: Device | str | None = None,
) -> float | list[float]:
    """Milliseconds that ``fn`` takes.

    ``warmup`` and ``rep`` are milliseconds of launches before and while timing. On a GPU each launch is timed by events
    with the L2 cache flushed before it; on a CPU by the wall clock, caches as they are. ``quantiles`` (0 to 1) returns
    those instead of what ``return_mode`` names; ``all`` returns every time. ``grad_to_none``: tensors whose ``.grad``
    is cleared before each launch.

    Raises:
        LaunchError: an unknown ``return_mode``, or a quantile outside 0 to 1.
    """
    if return_mode not in ("mean", "median", "min", "max", "all"):
        raise LaunchError(f"return_mode {return_mode!r}", hint="use mean, median, min, max or all")
    where = get_device(device) if isinstance(device, str) else device or benchmark_device()
    fn()
    where.synchronize()
    estimate = max(_estimate_ns(fn, where), 1)
    for _ in range(_count(warmup, estimate)):
        fn()
    timers = []
    for _ in range(_count(rep, estimate)):
        for tensor in grad_to_none or ():
            tensor.grad = None
        timers.append(_timed(fn, where))
    where.synchronize()
    times = [t.elapsed_ns() / 1e6 for t in timers]
    if quantiles is not None:
        found = [quantile(times, q) for q in quantiles]
        return found[0] if len(found) == 1 else found
    return times if return_mode == "all" else _SUMMARIES[return_mode](times)


_SUMMARIES: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


def race(
    calls: Sequence[Callable[[], object]],
    device: Device,
    *,
    warmup_ms: float,
    rep_ms: float,
    before: Callable[[], object] | None = None,
) -> list[list[float]]:
    """Milliseconds of each of ``calls``, timed in turns so that a drift of the clocks meets all alike.

    Every call gets ``rep_ms`` of timed launches, but those that are far behind after a few rounds get no more.
    ``before`` runs untimed before each launch.
    """
    estimates = []
    for call in calls:
        if before:
            before()
        call()
        device.synchronize()
        estimates.append(max(_estimate_ns(call, device, before), 1))
        for _ in range(_count(warmup_ms, estimates[-1]) // 4):
            call()
    times: list[list[float]] = [[] for _ in calls]
    wanted = [_count(rep_ms, e) for e in estimates]
    running = set(range(len(calls)))
    rounds, next_look = 0, _FIRST_ROUNDS
    while running:
        pending: list[tuple[int, Timer]] = []
        for i in sorted(running):
            if before:
                before()
            pending.append((i, _timed(calls[i], device)))
        device.synchronize()
        for i, timer in pending:
            times[i].append(timer.elapsed_ns() / 1e6)
        rounds += 1
        running = {i for i in running if rounds < wanted[i]}
        if rounds == next_look:  # each look sorts all times: doubling the distance keeps short launches short
            next_look *= 2
            medians = [statistics.median(t) for t in times]
            running = {i for i in running if medians[i] <= _HOPELESS * min(medians)}
    return times


def quantile(values: Sequence[float], q: float) -> float:
    """The ``q``-quantile, interpolated linearly between neighbours (NumPy's default)."""
    if not 0 <= q <= 1:
        raise LaunchError(f"the quantile {q} is not between 0 and 1")
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _timed(fn: Callable[[], object], device: Device) -> Timer:
    if device.name != "cpu":
        device.flush_l2()
    timer = device.timer()
    timer.start()
    fn()
    timer.stop()
    return timer


def _estimate_ns(fn: Callable[[], object], device: Device, before: Callable[[], object] | None = None) -> float:
    """Rough duration of one call, from a few in a row."""
    total = 0
    for _ in range(_ESTIMATE_LAUNCHES):
        if before:
            before()
        timer = _timed(fn, device)
        total += timer.elapsed_ns()
    return total / _ESTIMATE_LAUNCHES


def _count(milliseconds: float, each_ns: float) -> int:
    return int(min(max(milliseconds * 1e6 / each_ns, _FEWEST), _MOST))
