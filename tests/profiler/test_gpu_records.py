"""GPU records into trees, with a source that hands over made-up buffers instead of CUPTI's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from child_names import names, times
from gpu_stand_in import FakeGpu

import deuteron.profiler as proton
from deuteron.profiler import CuptiError
from deuteron.profiler.attribution import LaunchLog
from deuteron.profiler.recorder import recorder


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("change", ["a phase", "a session"])
def test_a_scope_that_is_entered_again_is_a_frame_of_what_began_inside_it(change: str) -> None:
    """Its place is known by then, to who asked where kernels belong; nothing was in it yet."""
    first = proton.start("first")
    with proton.scope("A"):
        if change == "a phase":
            proton.data.advance_phase(first)
        else:
            proton.start("second")
    with proton.scope("A"):
        pass
    if change == "a phase":
        assert names(proton.data.get(first, 1)[0]) == ["A"]
    proton.finalize()
    if change == "a session":
        assert names(json.loads(Path("second.hatchet").read_text())[0]) == ["A"]


def test_kernels_hang_below_the_scope_that_launched_them(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    session = proton.start("p")
    gpu.launch("outside", 1)
    with proton.scope("A"):
        gpu.launch("k", 10)
        with proton.scope("B"):
            gpu.launch("k", 20, device=1)
        gpu.launch("k", 30)
        with proton.state("S"):
            gpu.launch("k", 40)
    proton.deactivate(session, flushing=True)
    kernel = {"count": 1, "device_id": "0", "device_type": "CUDA"}
    assert tree("outside")["metrics"] == {**kernel, "time (ns)": 1}
    assert tree("A", "k")["metrics"] == {**kernel, "count": 2, "time (ns)": 40}
    assert tree("A", "B", "k")["metrics"] == {**kernel, "device_id": "1", "time (ns)": 20}
    assert tree("A", "S", "k")["metrics"] == {**kernel, "time (ns)": 40}
    proton.finalize()
    literal = json.loads(Path("p.hatchet").read_text())
    assert literal[0]["metrics"] == {"count": 0, "time (ns)": 0}
    assert set(literal[1]["CUDA"]) == {"0", "1"}
    assert gpu.log[0] == "start" and gpu.log[-1] == "stop" and gpu.number == 0


def test_equal_kernels_on_two_devices_stay_apart(gpu: FakeGpu) -> None:
    """In one scope they share a frame; the timeline has a lane for each, and the profile describes both devices."""
    proton.start("p", data="trace")
    proton.start("q")
    with proton.scope("A"):
        for device, duration in ((0, 10), (1, 20), (0, 30), (1, 40)):
            gpu.launch("k", duration, device=device)
    proton.finalize()
    trace = json.loads(Path("p.chrome_trace").read_text())["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    spans = [(lanes[e["tid"]], e["dur"] * 1000) for e in trace if e["ph"] == "X" and e["name"] == "k"]
    assert sorted(spans) == [(f"GPU {d} Stream 3", t) for d, t in ((0, 10), (0, 30), (1, 20), (1, 40))]
    assert set(json.loads(Path("q.hatchet").read_text())[1]["CUDA"]) == {"0", "1"}


def test_a_graph_launch_has_many_kernels(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.scope("replay"):
        gpu.launch("k", 5, kernels=7)
    proton.deactivate(flushing=True)
    assert tree("replay", "k")["metrics"]["count"] == 7
    assert tree("replay", "k")["metrics"]["time (ns)"] == 35


def test_a_graph_that_was_made_before_is_named_once(gpu: FakeGpu, capfd: pytest.CaptureFixture) -> None:
    proton.start("p")
    for _ in range(2):
        gpu.replay({77: "k", 78: "k"}, 5)
        proton.deactivate(flushing=True)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("proton: Cannot find graph for graphExecId: 1.") and "before the graph is created" in line


def test_kernels_of_a_graph_hang_below_where_they_were_captured(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    """Also when a later phase replays it, and another session that began after the capture knows nothing of it."""
    session = proton.start("p")
    with proton.scope("outer"), proton.scope("capture"):
        with proton.scope("product"):
            nodes = {gpu.capture(): "mm"}
        nodes[gpu.capture()] = "relu"
    proton.start("later")
    with proton.scope("replay"):
        gpu.replay({**nodes, 999: "made before"}, 5)
        gpu.replay(nodes, 5)
        gpu.launch("relu", 1)
    proton.data.advance_phase(session)
    gpu.replay(nodes, 7)
    proton.finalize()
    trees = {
        name: json.loads(Path(name).read_text())[0]
        for name in ("p.part_0.hatchet", "p.part_1.hatchet", "later.hatchet")
    }
    captured = ("outer", "capture")
    assert times(trees["p.part_0.hatchet"]) == {
        ("replay", "<captured_at>", *captured, "product", "mm"): (2, 10),
        ("replay", "<captured_at>", *captured, "relu"): (2, 10),
        ("replay", "made before"): (1, 5),
        ("replay", "relu"): (1, 1),
    }
    assert times(trees["p.part_1.hatchet"]) == {
        ("<captured_at>", *captured, "product", "mm"): (1, 7),
        ("<captured_at>", *captured, "relu"): (1, 7),
    }
    assert times(trees["later.hatchet"]) == {
        ("mm",): (1, 7),
        ("relu",): (1, 7),
        ("replay", "made before"): (1, 5),
        ("replay", "mm"): (2, 10),
        ("replay", "relu"): (3, 11),
    }


def test_metadata_takes_the_kernels_time_itself(gpu: FakeGpu, tree: Callable[..., dict], launch: Callable) -> None:
    proton.start("p", hook="triton")

    def metadata() -> dict[str, object]:
        gpu.launch("helper", 3)
        return {"name": "nice", "flops16": 8}

    with proton.scope("A"):
        for _ in range(2):
            launch("raw", metadata, device="cuda:0", body=lambda: gpu.launch("raw", 50))
        gpu.launch("torch_kernel", 7)
    proton.deactivate(flushing=True)
    assert set(names(tree("A"))) == {"__proton_launch_metadata", "nice", "torch_kernel"}
    assert tree("A", "nice")["children"] == []
    assert tree("A", "nice")["metrics"] == {
        "flops16": 16.0,
        "count": 2,
        "time (ns)": 100,
        "device_id": "0",
        "device_type": "CUDA",
    }
    assert tree("A", "__proton_launch_metadata", "raw", "helper")["metrics"]["count"] == 2


def test_records_in_flight_keep_the_phase_they_were_launched_in(gpu: FakeGpu) -> None:
    session = proton.start("p")
    gpu.launch("early", 1)
    proton.data.advance_phase(session)
    gpu.launch("late", 1)
    assert not proton.data.is_phase_complete(session, 0)
    proton.deactivate(session, flushing=True)
    assert proton.data.is_phase_complete(session, 0)
    assert names(proton.data.get(session, 0)[0]) == ["early"]
    assert names(proton.data.get(session, 1)[0]) == ["late"]


def test_kernels_of_one_launch_may_arrive_apart(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.scope("A"):
        gpu.launch("k", 5, kernels=4)
    first, *rest = gpu.in_flight
    gpu.arrived.append(gpu.synthetic.buffer(first))
    assert tree("A", "k")["metrics"]["count"] == 1
    gpu.in_flight = rest
    proton.deactivate(flushing=True)
    assert tree("A", "k")["metrics"]["count"] == 4
    assert names(tree()) == ["A"]


def test_a_number_of_an_ended_profiler_means_nothing(
    gpu: FakeGpu, synthetic: SimpleNamespace, tree: Callable[..., dict]
) -> None:
    proton.start("one")
    with proton.scope("old"):
        stale = gpu.number
    proton.finalize()
    again = FakeGpu(synthetic)
    recorder.start_gpu(required=True, source=again)
    proton.start("two")
    with proton.scope("new"):
        again.place.value = stale  # as in a thread that has not called the profiler since
        again.launch("k", 1)
    proton.deactivate(flushing=True)
    assert names(tree(session=1)) == ["new", "k"]


def test_launch_log_finds_every_number_however_it_was_added() -> None:
    draw = np.random.default_rng(0)
    ids = draw.permutation(5000).astype(np.uint32) + 1
    launches = np.stack([ids, ids * 3 + 1], axis=1)
    log = LaunchLog()
    for part in np.array_split(launches, 137):
        log.add(part)
    log.add(launches[:0])
    assert len(log._runs) < 14
    assert np.array_equal(log.numbers(ids), ids * 3 + 1)
    assert log.numbers(np.array([0, 5001, 2**32 - 1], np.uint32)).tolist() == [0, 0, 0]
    log.begin_flush()
    assert np.array_equal(log.numbers(ids), ids * 3 + 1)
    log.add(np.array([[6000, 7]], np.uint32))
    log.clear()
    assert log.numbers(np.array([*ids[:2], 6000], np.uint32)).tolist() == [0, 0, 7]


def test_trace_has_a_lane_for_each_stream(gpu: FakeGpu) -> None:
    proton.start("t", data="trace")
    with proton.scope("A"):
        gpu.epoch_offset_ns = time.time_ns() - gpu.clock
        gpu.launch("k", 2000)
    proton.finalize()
    events = json.loads(Path("t.chrome_trace").read_text())["traceEvents"]
    kernel = next(event for event in events if event.get("cat") == "kernel")
    assert kernel["dur"] == 2.0
    scope = next(event for event in events if event.get("cat") == "scope")
    assert scope["ts"] <= kernel["ts"] < scope["ts"] + 1e6  # on one clock
    assert kernel["args"]["call_stack"] == ["ROOT", "A", "k"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes[kernel["tid"]] == "GPU 0 Stream 3"


def test_unreadable_records_are_an_error_of_finalize(gpu: FakeGpu) -> None:
    proton.start("p")
    gpu.broken = True
    with pytest.raises(CuptiError, match="unreadable"):
        proton.finalize()
    gpu.broken = False
    proton.finalize()
    assert Path("p.hatchet").exists()


def test_backend_cupti_without_a_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from deuteron.profiler.sources import driver

    monkeypatch.setattr(driver, "device_count", lambda: 0)
    with pytest.raises(CuptiError, match="needs an NVIDIA GPU"):
        proton.start("p", backend="cupti")
    assert proton.start("p") == 0


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    from deuteron.compiler import knobs
    from deuteron.profiler.sources.locate import load_cupti

    with pytest.raises(CuptiError, match="no usable libcupti at .*absent.so") as caught:
        load_cupti(str(tmp_path / "absent.so"))
    assert "DEUTERON_CUPTI_LIB_PATH" in str(caught.value)
    with knobs.cupti_path.scope(tmp_path), pytest.raises(CuptiError, match="libcupti.so.13"):
        load_cupti()


def test_another_profiler_in_the_process_is_named() -> None:
    from deuteron.profiler.sources.cupti import CuptiSource

    source = CuptiSource.__new__(CuptiSource)
    source._cupti = SimpleNamespace(cuptiGetResultString=lambda code, text: 0)
    error = source._error("cuptiSubscribe", 39)
    assert "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS" in error.message
    assert "one client" in str(error)
