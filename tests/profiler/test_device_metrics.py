"""Metrics that are tensors on a GPU, and what is given while a graph is captured, with a GPU that is made up."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gpu_stand_in import FakeGpu, FakeTensor, Graph

import deuteron.profiler as proton
from deuteron.profiler.recorder import recorder


def metrics(node: dict) -> dict[str, object]:
    """Those that a program gave."""
    own = {"count", "time (ns)", "device_id", "device_type"}
    return {key: value for key, value in node["metrics"].items() if key not in own}


def test_a_tensor_is_added_when_its_kernel_has_run(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    proton.start("p")
    loss = FakeTensor(2.5)
    with proton.scope("step", {"loss": loss, "tokens": 7, "bytes": FakeTensor(3.0)}):
        gpu.launch("k", 10)
        loss.elements = [99.0]  # computed later: not what the kernel saw
    assert metrics(tree("step")) == {"tokens": 7, "loss": 2.5, "bytes": 3}
    proton.deactivate(flushing=True)
    told = tree("step", "__proton_launch_metadata", "<metric>")
    assert told["metrics"]["count"] == 2 and told["children"] == []
    assert tree("step", "k")["metrics"]["count"] == 1


def test_a_launch_has_tensors_as_metrics(gpu: FakeGpu, tree: Callable[..., dict], launch: Callable) -> None:
    proton.start("p", hook="triton")
    for size in (3, 4):
        given = {"name": "nice", "flops": FakeTensor(size), "sizes (pty)": FakeTensor(size, 1), "bytes": 2}
        launch("raw", given, device="cuda:0", body=lambda: gpu.launch("raw", 5))
    proton.deactivate(flushing=True)
    assert metrics(tree("nice")) == {"flops": 7.0, "sizes": [4, 1], "bytes": 4}
    assert tree("nice")["metrics"]["count"] == 2
    assert tree("__proton_launch_metadata", "raw", "<metric>")["metrics"]["count"] == 4


def test_what_is_captured_counts_where_and_when_the_graph_is_launched(
    gpu: FakeGpu, tree: Callable[..., dict], launch: Callable
) -> None:
    proton.start("p", hook="triton")
    graph, loss = Graph(gpu), FakeTensor(1.0)
    with graph, proton.scope("layer", {"tokens": 5, "loss": loss}):
        given = {"name": "nice", "flops": FakeTensor(8.0), "bytes": 16}
        launch("raw", given, device="cuda:0", body=lambda: graph.kernel("raw"))
    proton.deactivate(flushing=True)
    proton.activate()
    assert metrics(tree("layer")) == {}, "capturing is not running"
    for name, value in (("first", 2.0), ("second", 4.0), ("second", 8.0)):
        with proton.scope(name):
            loss.elements = [value]
            graph.replay()
    proton.deactivate(flushing=True)
    for name, times, total in (("first", 1, 2.0), ("second", 2, 12.0)):
        layer = (name, "<captured_at>", "layer")
        assert metrics(tree(*layer)) == {"tokens": 5 * times, "loss": total}
        assert metrics(tree(*layer, "nice")) == {"flops": 8.0 * times, "bytes": 16 * times}
        assert tree(*layer, "nice")["metrics"]["count"] == times
        assert tree(*layer, "__proton_launch_metadata", "<metric>")["metrics"]["count"] == 2 * times
        assert tree(*layer, "__proton_launch_metadata", "raw", "<metric>")["metrics"]["count"] == times
    assert tree("layer")["children"] == []


def test_a_replay_that_nobody_looks_at_leaves_its_values_out(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    session = proton.start("p")
    graph, loss = Graph(gpu), FakeTensor(1.0)
    with graph:
        proton.enter_scope("layer", metrics={"loss": loss})
        proton.exit_scope()
    proton.deactivate(session)
    graph.replay()
    proton.activate(session)
    loss.elements = [16.0]
    graph.replay()
    proton.deactivate(flushing=True)
    assert metrics(tree("<captured_at>", "layer")) == {"loss": 16.0}


def test_a_session_gets_what_was_captured_while_it_was_active(gpu: FakeGpu) -> None:
    early = proton.start("early")
    graph = Graph(gpu)
    with graph, proton.scope("layer", {"tokens": 5, "loss": FakeTensor(3)}):
        graph.kernel("k")
    proton.start("late")
    graph.replay()
    proton.data.advance_phase(early)
    graph.replay()
    proton.finalize()
    for name in ("early.part_0", "early.part_1", "late"):
        root = json.loads(Path(f"{name}.hatchet").read_text())[0]
        held = [node["metrics"] for node in every(root)[1:] if {"tokens", "loss"} & set(node["metrics"])]
        assert held == ([] if name == "late" else [{"tokens": 5, "loss": 3}]), name


def every(node: dict) -> list[dict]:
    return [node, *(inner for child in node["children"] for inner in every(child))]


def test_a_value_that_does_not_fit_is_left_out_with_a_warning(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.scope("A", {"x": FakeTensor(1.0)}):
        pass
    with proton.scope("A", {"x": FakeTensor(1, 2)}), pytest.warns(RuntimeWarning, match="type mismatch for 'x'"):
        proton.deactivate(flushing=True)
    assert metrics(tree("A")) == {"x": 1.0}


def test_values_that_never_come_are_counted(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    proton.start("p")
    monkeypatch.setattr(gpu.metrics, "tell", lambda *asked: None)
    with proton.scope("A", {"x": FakeTensor(1.0)}):
        pass
    with pytest.warns(RuntimeWarning, match="1 metrics of tensors are missing"):
        proton.deactivate(flushing=True)


def test_others_may_go_on_while_somebody_waits(
    gpu: FakeGpu, tree: Callable[..., dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs between the wait for the GPU and the look at what it left belongs to the next flush."""
    proton.start("p")
    graph, loss = Graph(gpu), FakeTensor(0)
    with graph, proton.scope("layer", {"loss": loss}):
        pass
    flush = gpu.flush

    def busy() -> None:
        flush()
        loss.elements = [loss.elements[0] + 1]
        with proton.scope(f"replay {loss.elements[0]}"):
            graph.replay()  # its value is there at once, its record is not
        with proton.scope("asked", {"n": FakeTensor(1)}):
            told.extend(gpu.metrics.told[-1:])
            gpu.metrics.told.pop()  # not even its value is

    told: list[tuple[int, np.ndarray]] = []
    monkeypatch.setattr(gpu, "flush", busy)
    for _ in range(3):
        recorder.flush()
        gpu.metrics.told, told = [*told, *gpu.metrics.told], []
    monkeypatch.setattr(gpu, "flush", flush)
    proton.deactivate(flushing=True)
    for number in (1, 2, 3):
        assert metrics(tree(f"replay {number}", "<captured_at>", "layer")) == {"loss": number}
    assert metrics(tree("asked")) == {"n": 3}


def test_a_session_without_gpu_records_reads_tensors_itself(tree: Callable[..., dict], launch: Callable) -> None:
    class Known(FakeTensor):
        def tolist(self) -> list[float]:
            return self.elements

    proton.start("p", backend="cpu", hook="triton")
    with proton.scope("A", {"x": Known(1.5)}):
        launch("raw", {"name": "nice", "n": Known(3, 4)})
        launch("raw", {"name": "other", "n": Known(5)}, device="cuda:0")
    assert metrics(tree("A")) == {"x": 1.5} and metrics(tree("A", "nice")) == {"n": [3, 4]}
    assert metrics(tree("A", "other")) == {"n": 5}


def test_a_tensor_that_is_refused_is_not_waited_for(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def refuse(*asked: object) -> None:
        raise proton.MetricError("too large")

    proton.start("p")
    monkeypatch.setattr(gpu.metrics, "write", refuse)
    with pytest.raises(proton.MetricError), proton.scope("A", {"x": FakeTensor(1.0)}):
        pass
    proton.deactivate(flushing=True)
    assert not recwarn.list


def test_traces_show_values_that_came_later(gpu: FakeGpu, launch: Callable) -> None:
    proton.start("p", data="trace", hook="triton")
    graph = Graph(gpu)
    with graph, proton.scope("layer"):
        launch("raw", {"name": "captured", "flops": 3}, device="cuda:0", body=lambda: graph.kernel("raw"))
    with proton.scope("A", {"loss": FakeTensor(0.5)}):
        launch("raw", {"name": "nice", "n": FakeTensor(6)}, device="cuda:0", body=lambda: gpu.launch("raw", 5))
        graph.replay()
    proton.finalize()
    events = json.loads(Path("p.chrome_trace").read_text())["traceEvents"]
    shown = {event["name"]: event["args"]["metrics"] for event in events if "metrics" in event.get("args", {})}
    assert shown == {
        "A: <loss, 0.500000>": {"loss": "0.500000"},
        "nice": {"n": "6"},
        "captured": {"flops": "3.000000"},
    }


def test_ranges_of_nvtx_are_scopes(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.scope("A"):
        gpu.pop_range()  # of a range that began before anybody looked
        gpu.push_range("outer")
        gpu.push_range("inner")
        gpu.launch("k", 5)
        gpu.pop_range()
        proton.enter_scope("forgotten")
        gpu.pop_range()
        gpu.pop_range()
        gpu.launch("k", 7)
    proton.deactivate(flushing=True)
    assert tree("A", "outer", "inner", "k")["metrics"]["time (ns)"] == 5
    assert tree("A", "k")["metrics"]["time (ns)"] == 7


def test_ranges_are_not_followed_where_nobody_wants_them(
    synthetic: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_ENABLE_NVTX", "0")
    fake = FakeGpu(synthetic)
    recorder.start_gpu(required=True, source=fake)
    proton.start("p")
    assert not hasattr(fake, "push_range")


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_and_replays_add_up(seed: int, gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    """Whenever records and values arrive, in any order, each replay's values go where it was launched."""
    rng = random.Random(seed)
    proton.start("p")
    graphs, wanted = [], Counter()
    for number in range(3):
        graph = Graph(gpu)
        given = {}
        with graph:
            for layer in range(rng.randint(1, 3)):
                tensor, constant = FakeTensor(0), rng.randint(1, 9)
                given[f"layer{number}{layer}"] = tensor, constant
                with proton.scope(f"layer{number}{layer}", {"t": tensor, "c": constant}):
                    if rng.random() < 0.5:
                        graph.kernel("k")
        graphs.append((graph, given))
    for _ in range(60):
        graph, given = rng.choice(graphs)
        place = rng.choice("ABC")
        with proton.scope(place):
            for layer, (tensor, constant) in given.items():
                tensor.elements = [rng.randint(-99, 99)]
                wanted[place, layer, "t"] += tensor.elements[0]
                wanted[place, layer, "c"] += constant
            graph.replay()
        late: list[tuple[int, np.ndarray]] = []
        if rng.random() < 0.3:
            gpu.metrics.told, late = [], gpu.metrics.told  # the records come first
        if rng.random() < 0.5:
            rng.shuffle(gpu.in_flight)  # streams hand their records over each by itself
        if rng.random() < 0.3:
            gpu.flush()
        if rng.random() < 0.5:
            recorder.gpu.drain()
        gpu.metrics.told = [*late, *gpu.metrics.told]
    proton.deactivate(flushing=True)
    for (place, layer, metric), total in wanted.items():
        assert tree(place, "<captured_at>", layer)["metrics"][metric] == total, (place, layer, metric)
