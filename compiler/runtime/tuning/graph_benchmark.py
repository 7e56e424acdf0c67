"""Timing what is launched without the cost of launching: many launches in one CUDA graph."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import DeviceError
from .benchmark import Clearable, ReturnMode, check_request, summary

#: Launches whose time says how many fill a graph, graphs that are timed, and launches of a graph at most.
_ESTIMATE_LAUNCHES, _REPLAYS, _MOST = 5, 10, 1000


def do_bench_cudagraph(
    fn: Callable[[], object],
    rep: float = 20,
    grad_to_none: Sequence[Clearable] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: ReturnMode = "mean",
) -> float | list[float]:
    """Milliseconds that ``fn`` takes on PyTorch's current GPU, as one of 1 to 1,000 launches in a CUDA graph that takes
    about ``rep`` milliseconds, replayed ten times. The cache is as the launch before left it. ``quantiles``,
    ``return_mode`` and ``grad_to_none`` are those of :func:`do_bench`.

    Raises:
        LaunchError: an unknown ``return_mode``, quantiles that are not a list of numbers from 0 to 1, or a time that is
            no number.
        DeviceError: PyTorch is not there, or has no GPU.
    """
    check_request({"rep": rep}, quantiles, return_mode)
    cuda = _cuda()
    with cuda.stream(cuda.Stream()):
        fn()
        estimate = _elapsed(cuda, lambda: [fn() for _ in range(_ESTIMATE_LAUNCHES)]) / _ESTIMATE_LAUNCHES
        count = _MOST if estimate == 0 else int(min(max(1, rep / estimate), _MOST))
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for _ in range(count):
                for tensor in grad_to_none or ():
                    tensor.grad = None
                fn()
        cuda.synchronize()
        times = [_elapsed(cuda, graph.replay) / count for _ in range(_REPLAYS)]
    return summary(times, quantiles, return_mode)


def _elapsed(cuda: Any, work: Callable[[], object]) -> float:
    """Milliseconds between events around ``work``."""
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    cuda.synchronize()
    return float(start.elapsed_time(end))


def _cuda() -> Any:
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        raise DeviceError("do_bench_cudagraph needs PyTorch", hint="use do_bench")
    cuda = importlib.import_module("torch").cuda
    if not cuda.is_available():
        raise DeviceError("do_bench_cudagraph needs a GPU, and PyTorch has none", hint="use do_bench")
    return cuda
