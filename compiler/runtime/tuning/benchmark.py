"""Timing of one function: Triton's ``testing.do_bench``."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from ... import knobs
from ...errors import LaunchError
from ...garbage import garbage_kept
from ..cuda.driver import contexts_in_use
from ..device import Device, Timer
from ..devices import default_device, get_device
from .checks import list_of, milliseconds, number

ReturnMode = Literal["mean", "median", "min", "max", "all"]

#: Launches whose mean gives the first estimate of a duration, unless one takes the warm-up's time alone.
_ESTIMATE_LAUNCHES = 5
#: Bounds on the number of timed launches, whatever their duration.
_FEWEST, _MOST = 3, 10_000

_now = time.perf_counter_ns


class Clearable(Protocol):
    """A torch tensor with a gradient."""

    grad: object


def benchmark_device() -> Device:
    """Where timing happens unless a device is named: DEUTERON_DEVICE, else the GPU once this process uses one."""
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

    ``warmup`` and ``rep`` are milliseconds of wall time before and while timing, with flushes and the cost of
    launching. On a GPU each launch is timed by events with the L2 cache flushed before it; on a CPU by the wall clock,
    caches as they are. ``quantiles`` (0 to 1) returns those instead of what ``return_mode`` names; ``all`` returns
    every time. ``grad_to_none``: tensors whose ``.grad`` is cleared before each launch. There are 3 to 10,000 timed
    launches, whatever they take. Python collects no garbage meanwhile, as in ``timeit``: with torch loaded that takes
    nearly a tenth of a second.

    Raises:
        LaunchError: an unknown ``return_mode``, quantiles that are not a list of numbers from 0 to 1, or a time that is
            no number.
    """
    check_request({"warmup": warmup, "rep": rep}, quantiles, return_mode)
    where = get_device(device) if isinstance(device, str) else device or benchmark_device()
    fn()
    where.synchronize()
    timers = []
    with garbage_kept():
        each_ns, spent_ns = _estimate(fn, where, warmup * 1e6)
        for _ in range(int(min((warmup * 1e6 - spent_ns) / each_ns, _MOST))):
            fn()
        for _ in range(int(min(max(rep * 1e6 / each_ns, _FEWEST), _MOST))):
            for tensor in grad_to_none or ():
                tensor.grad = None
            timers.append(_timed(fn, where))
        where.synchronize()
    return summary([t.elapsed_ns() / 1e6 for t in timers], quantiles, return_mode)


def check_request(times: Mapping[str, object], quantiles: object, return_mode: str) -> None:
    """Raise LaunchError for what there is not: ``times`` in milliseconds by name, and what is to be told of them."""
    for name, time_ms in times.items():
        milliseconds(time_ms, name)
    if return_mode not in ("mean", "median", "min", "max", "all"):
        raise LaunchError(f"return_mode {return_mode!r}", hint="use mean, median, min, max or all")
    if quantiles is not None:
        hint = "give a list of numbers from 0 to 1"
        for q in list_of(object, quantiles, "quantiles", hint):
            if not 0 <= number(q, "a quantile", hint) <= 1:
                raise LaunchError(f"the quantile {q} is not between 0 and 1")


def summary(times: list[float], quantiles: Sequence[float] | None, return_mode: ReturnMode) -> float | list[float]:
    """Times as ``quantiles``, or else ``return_mode``, ask for them."""
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


def quantile(values: Sequence[float], q: float) -> float:
    """The ``q``-quantile (0 to 1), interpolated linearly between neighbours (NumPy's default)."""
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


def _estimate(fn: Callable[[], object], device: Device, warmup_ns: float) -> tuple[float, float]:
    """Nanoseconds of wall time that a timed launch of ``fn`` takes, and that finding out took."""
    if device.name != "cpu":
        device.flush_l2()  # the first one allocates
        device.synchronize()
    begin = _now()
    for count in (1, _ESTIMATE_LAUNCHES - 1):
        first = _now()
        for _ in range(count):
            _timed(fn, device)
        device.synchronize()
        end = _now()
        if end - begin >= warmup_ns / 2:
            break
    return max((end - first) / count, 1.0), end - begin
