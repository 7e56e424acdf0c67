"""Candidates timed against each other in interleaved rounds, and how far a result is from its reference."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Bytes that are overwritten before each launch on a GPU: four times the L2 of the largest, as in Triton's do_bench.
FLUSH = 256 << 20
#: Clock cycles that the GPU waits after that, some 400 us: a call of several kernels is queued before the first begins.
HEAD_START = 800_000

Call = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Of the launches of one candidate: median in microseconds, (p75 - p25) / median, and between which microseconds
    the median lies with 95 % confidence, where the number of launches says so."""

    us: float
    spread: float
    launches: int
    between: tuple[float, float] | None = None

    def is_slower_than(self, other: Timing) -> bool:
        """Whether the two medians differ beyond their intervals."""
        return self.between is not None and other.between is not None and self.between[0] > other.between[1]


def race(calls: Mapping[str, Call], device: str, rounds: int, announce: Callable[[str], None]) -> dict[str, Timing]:
    """Time every call once a round, in turns, so that a drift of clocks or power meets all alike; every other round
    backwards, so that none always follows the same one. ``announce`` is told whose turn it is, for a watchdog. On a GPU
    the L2 is flushed before each launch; the first round warms up."""
    time_one = _timer_on_gpu() if device.startswith("cuda") else _timed_on_cpu
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            announce(name)
            spent = time_one(calls[name])
            if turn:
                times[name].append(spent)
    return {name: _summary(values) for name, values in times.items()}


def _summary(values: list[float]) -> Timing:
    median = statistics.median(values)
    quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [median] * 3
    return Timing(median, (quartiles[2] - quartiles[0]) / median, len(values), _interval_of_median(sorted(values)))


def _interval_of_median(ordered: list[float]) -> tuple[float, float] | None:
    """The two values whose ranks a fair coin's heads, of as many throws, lie between with 95 % probability (the sign
    test's interval). None of fewer than six values, which have no such pair."""
    count, tail = len(ordered), 0.0
    for rank in range(count):
        tail += math.comb(count, rank) / 2**count
        if tail > 0.025:
            return (ordered[rank - 1], ordered[count - rank]) if rank else None
    return None


def _timed_on_cpu(call: Call) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e6


def _timer_on_gpu() -> Callable[[Call], float]:
    import torch  # lazy: what compares timings needs no torch

    cold = torch.empty(FLUSH, dtype=torch.uint8, device="cuda")

    def timed(call: Call) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cold.zero_()
        torch.cuda._sleep(HEAD_START)
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3

    return timed


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Of the Frobenius norms, in f64 a few rows at a time; NaN, such as an element never written, stays NaN."""
    difference = norm = 0.0
    for left, right in _pieces(found, wanted):
        difference += (left - right).square().sum().item()
        norm += right.square().sum().item()
    return math.sqrt(difference / norm) if norm else float(difference > 0)


def differs(found: torch.Tensor, wanted: torch.Tensor, close: float) -> str:
    """How results of two compilers differ: integers at all, numbers in what is finite or by a relative error above
    ``close``; empty where they do not."""
    if not found.dtype.is_floating_point:
        count = int((found != wanted).sum())
        return f"{count} of {found.numel()} differ" if count else ""
    odd, difference, norm = 0, 0.0, 0.0
    for left, right in _pieces(found, wanted):
        odd += int((left.isfinite() != right.isfinite()).sum())
        finite = left.isfinite() & right.isfinite()
        difference += (left - right).where(finite, 0.0).square().sum().item()
        norm += right.where(finite, 0.0).square().sum().item()
    if odd:
        return f"{odd} of {found.numel()} are finite on one side"
    error = math.sqrt(difference / norm) if norm else float(difference > 0)
    return f"error {error:.3g}" if error > close else ""


def _pieces(found: torch.Tensor, wanted: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for left, right in zip(found.reshape(-1).split(1 << 24), wanted.reshape(-1).split(1 << 24), strict=True):
        yield left.double(), right.double()


def geomean(values: list[float]) -> float:
    """Geometric mean; NaN of an empty list."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan
