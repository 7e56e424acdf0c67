"""do_bench_cudagraph on a pretended torch.cuda whose clock goes by the launches that it is given."""

from __future__ import annotations

import contextlib
import importlib
import math
import types
from typing import Any

import pytest

from deuteron.compiler.errors import DeviceError, LaunchError
from deuteron.testing import do_bench_cudagraph

bench = importlib.import_module("deuteron.compiler.runtime.tuning.graph_benchmark")


class Cuda:
    """A launch takes 2 ms, but the replays of a graph take one launch longer each time."""

    def __init__(self, is_there: bool = True) -> None:
        self.now, self.capturing, self.held, self.replays = 0.0, False, 0, 0
        self.is_available = lambda: is_there

    def launch(self) -> None:
        if self.capturing:
            self.held += 1
        else:
            self.now += 2.0

    def replay(self) -> None:
        assert self.held and not self.capturing
        self.now += 2.0 * (self.held + self.replays)
        self.replays += 1

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802 -- torch's name
        assert enable_timing
        event = types.SimpleNamespace(at=None)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: end.at - event.at
        return event

    @contextlib.contextmanager
    def graph(self, graph: Any):
        self.capturing = True
        yield
        self.capturing = False

    def CUDAGraph(self) -> Any:  # noqa: N802 -- torch's name
        return types.SimpleNamespace(replay=self.replay)

    stream = staticmethod(lambda stream: contextlib.nullcontext())
    Stream = staticmethod(object)
    synchronize = staticmethod(lambda: None)


@pytest.fixture
def cuda(monkeypatch):
    made = Cuda()
    monkeypatch.setattr(bench, "_cuda", lambda: made)
    return made


def test_a_graph_as_long_as_asked_is_replayed(cuda):
    leaf = types.SimpleNamespace(grad=1)
    times = do_bench_cudagraph(cuda.launch, rep=20, grad_to_none=[leaf], return_mode="all")
    assert cuda.held == 10 and leaf.grad is None
    assert times == pytest.approx([2.0 + 0.2 * i for i in range(10)])


def test_times_are_summed_up_as_asked(cuda):
    assert do_bench_cudagraph(cuda.launch, rep=1) == pytest.approx(2 + 2 * 4.5)  # a single launch fills the graph
    assert do_bench_cudagraph(cuda.launch, rep=2e9, quantiles=[0.0]) < 3 and cuda.held == 1001
    assert do_bench_cudagraph(cuda.launch, rep=math.inf, quantiles=[0.0]) and cuda.held == 2001
    with pytest.raises(LaunchError, match="return_mode"):
        do_bench_cudagraph(cuda.launch, return_mode="typical")  # type: ignore[arg-type]


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setitem(importlib.sys.modules, "torch", types.SimpleNamespace(cuda=Cuda(is_there=False)))
    with pytest.raises(DeviceError, match="PyTorch has none"):
        do_bench_cudagraph(lambda: None)
