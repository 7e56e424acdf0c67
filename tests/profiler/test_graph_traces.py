"""Scopes of CUDA graphs in traces: lanes of ranges above the kernels, and arrows, with a GPU that is made up."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu_stand_in import FakeGpu, FakeTensor, Graph
from trace_checks import check_lines, in_ns, lanes_of, strict

import deuteron.profiler as proton
from deuteron.profiler.graph_scopes import graph_scopes
from deuteron.profiler.recorder import recorder
from deuteron.profiler.timeline import GraphNode, Lane, Timeline


@pytest.fixture
def gpu(synthetic: SimpleNamespace) -> FakeGpu:
    fake = FakeGpu(synthetic)
    fake.epoch_offset_ns = time.time_ns() - fake.clock
    recorder.start_gpu(required=True, source=fake)
    return fake


def written(name: str = "t") -> list[dict]:
    return strict(Path(f"{name}.chrome_trace").read_text())["traceEvents"]


@dataclass(frozen=True)
class Range:
    """A range as a trace shows it; times in nanoseconds from the beginning of the trace."""

    lane: str
    path: tuple[str, ...]
    begin: int
    end: int
    correlation: int


def ranges_of(events: list[dict]) -> list[Range]:
    lanes = lanes_of(events)
    ranges = []
    for event in events:
        if event["ph"] == "X" and lanes[event["tid"]].startswith("Graph: Stream "):
            path, begin = tuple(event["args"]["call_stack"]), in_ns(event["ts"])
            assert (event["cat"], event["name"]) == ("scope", path[-1])
            end = begin + in_ns(event["dur"])
            ranges.append(Range(lanes[event["tid"]], path, begin, end, event["args"]["correlation"]))
    return ranges


def bound(events: list[dict], end: dict) -> dict:
    """The event that an end of an arrow belongs to: the one that began last of those that are open then. Perfetto has
    events before ends of the same time, the longer ones first."""
    spans = [event for event in events if event["ph"] == "X" and event["tid"] == end["tid"]]
    open_ = [span for span in spans if span["ts"] <= end["ts"] and end["ts"] <= span["ts"] + span["dur"]]
    return max(open_, key=lambda span: (span["ts"], -span["dur"]))


def arrows_of(events: list[dict]) -> list[list[dict]]:
    """What each arrow begins at, passes through and ends at."""
    ends = sorted((event for event in events if event.get("cat") == "flow"), key=lambda event: event["id"])
    arrows = [list(group) for _, group in itertools.groupby(ends, key=lambda event: event["id"])]
    assert all([end["ph"] for end in arrow] in (["s", "f"], ["s", "t", "f"]) for arrow in arrows)
    return [[bound(events, end) for end in arrow] for arrow in arrows]


class Network:
    """A made-up graph: scopes in scopes, entered again and again under few names, and kernels on several streams."""

    def __init__(self, gpu: FakeGpu, draw: random.Random, number: int) -> None:
        self.draw = draw
        self.graph = Graph(gpu, number)
        # Of each node the scopes around: names, and a number for each time that one was entered.
        self.around: dict[int, tuple[tuple[str, int], ...]] = {}
        self.entries = itertools.count()
        with self.graph:
            self.block(())

    def block(self, around: tuple[tuple[str, int], ...]) -> None:
        for _ in range(self.draw.randint(0, 4)):
            if len(around) < 4 and self.draw.random() < 0.5:
                name = self.draw.choice("abc")
                with proton.scope(name):
                    self.block((*around, (name, next(self.entries))))
            else:
                self.around[self.graph.kernel("k", self.draw.choice([3, 3, 5]))] = around


class Account:
    """What graphs launched, and the ranges that follow from it, found scope by scope."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        # By lane, launch and place of the launch: of each kernel its scopes, and when it ran.
        self.ran: dict[tuple[str, int, str], list[tuple[tuple[tuple[str, int], ...], int, int]]] = {}

    def replay(self, network: Network, place: str) -> None:
        """Launch, with kernels that take their time, in an order in which the branches of the graph take turns."""
        nodes = list(network.graph.nodes)
        if network.draw.random() < 0.3:
            network.draw.shuffle(nodes)
        begin, duration = self.gpu.clock, network.draw.randint(1, 5)
        with proton.scope(place):
            self.gpu.replay(dict.fromkeys(nodes, "k"), duration, network.graph.number, network.graph.streams)
        for at, node in enumerate(nodes):
            lane = f"Graph: Stream {network.graph.streams[node]} (GPU 0, Graph {network.graph.number})"
            kernels = self.ran.setdefault((lane, self.gpu.launched, place), [])
            kernels.append((network.around[node], begin + at * duration, begin + (at + 1) * duration))

    def ranges(self) -> list[Range]:
        found = []
        for (lane, launch, place), kernels in self.ran.items():
            for depth in range(6):
                for around, of_scope in itertools.groupby(kernels, key=lambda kernel, d=depth: kernel[0][:d]):
                    run = list(of_scope)
                    if len(around) == depth:
                        path = ("ROOT", place, "<captured_at>", *(name for name, _ in around))
                        found.append(Range(lane, path, run[0][1], run[-1][2], launch))
        return found


@pytest.mark.parametrize("seed", range(25))
def test_ranges_are_those_of_the_scopes(seed: int, gpu: FakeGpu) -> None:
    """Of graphs that take turns, launched again and again, whenever their records arrive."""
    draw = random.Random(seed)
    proton.start("t", data="trace")
    networks = [Network(gpu, draw, number) for number in (1, 2)]
    account = Account(gpu)
    begun = gpu.clock
    for _ in range(draw.randint(1, 12)):
        account.replay(draw.choice(networks), draw.choice("xy"))
        if draw.random() < 0.3:
            draw.shuffle(gpu.in_flight)
            gpu.flush()
            recorder.gpu.drain()  # type: ignore[union-attr]
    proton.finalize()
    events = written()
    spans = [event for event in events if event["ph"] == "X"]
    kernels = [event for event in spans if event["cat"] == "kernel"]
    base = min((in_ns(kernel["ts"]) for kernel in kernels), default=0) - begun
    expected = [Range(r.lane, r.path, r.begin + base, r.end + base, r.correlation) for r in account.ranges()]
    found = ranges_of(events)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    check_lines(spans)
    check_kernels_of(found, kernels, lanes_of(events))


def check_kernels_of(ranges: list[Range], kernels: list[dict], lanes: dict[int, str]) -> None:
    """Whatever runs during a range on its stream was captured in its scope."""
    for range_ in ranges:
        _, _, stream, _, device, _, graph = range_.lane.replace("(", "").replace(")", "").replace(",", "").split()
        inside = [
            kernel
            for kernel in kernels
            if lanes[kernel["tid"]] == f"GPU {device} Graph {graph} Stream {stream}"
            and in_ns(kernel["ts"]) < range_.end
            and in_ns(kernel["ts"]) + in_ns(kernel["dur"]) > range_.begin
        ]
        assert inside, "a range has kernels"
        for kernel in inside:
            assert tuple(kernel["args"]["call_stack"][: len(range_.path)]) == range_.path
            assert kernel["args"]["correlation"] == range_.correlation


def test_a_graph_as_proton_shows_it(gpu: FakeGpu) -> None:
    """Three scopes inside each other, the innermost with a tensor as its metric."""
    proton.start("t", data="trace")
    graph, loss = Graph(gpu), FakeTensor(1.0)
    with graph, proton.scope("a"):
        with proton.scope("b"):
            with proton.scope("c", {"m1": loss, "n": 5}):
                graph.kernel("foo")
            graph.kernel("foo")
        graph.kernel("foo")
    for place, value in (("test0", 2.5), ("test1", 3.5)):
        with proton.scope(place):
            loss.elements = [value]
            graph.replay(1000)
    proton.finalize()
    events = written()
    (lane,) = {range_.lane for range_ in ranges_of(events)}
    assert lane == "Graph: Stream 3 (GPU 0, Graph 1)"
    start = min(range_.begin for range_ in ranges_of(events))
    found = [(range_.path[1:], range_.begin - start, range_.end - start) for range_ in ranges_of(events)]
    # Five kernels a launch: one that tells the tensor, one for the number, and foo three times.
    assert found == [
        ((place, "<captured_at>", *"abc"[:depth]), at, at + end)
        for place, at in (("test0", 0), ("test1", 5000))
        for depth, end in enumerate((5000, 5000, 4000, 3000))
    ]
    metrics = [event["args"]["metrics"] for event in events if event.get("name") == "c" and "metrics" in event["args"]]
    assert metrics == [{"m1": "2.500000", "n": "5"}, {"m1": "3.500000", "n": "5"}]
    told = [event["args"]["metrics"] for event in events if event.get("name") == "<metric>"]
    assert told == [{"m1": "2.500000"}, {"n": "5"}, {"m1": "3.500000"}, {"n": "5"}]


def test_an_arrow_leads_from_the_scope_through_the_call_to_the_first_kernel(gpu: FakeGpu) -> None:
    proton.start("t", data="trace")
    graph = Graph(gpu)
    with graph, proton.scope("layer"):
        for stream in (5, 3, 5, 3):
            graph.kernel(f"on {stream}", stream)
    with proton.scope("outer"), proton.scope("test"):
        gpu.launch("plain", 10)
        graph.replay()
    graph.replay()  # in no scope
    proton.finalize()
    events = written()
    stacks = [[tuple(end["args"]["call_stack"][1:]) for end in arrow] for arrow in arrows_of(events)]
    within, call, captured = ("outer", "test"), "cuGraphLaunch", ("<captured_at>", "layer")
    assert stacks == [
        [(*within, "cuLaunchKernel"), (*within, "plain")],
        [within, (*within, call), (*within, *captured, "on 5")],
        [(*within, call), (*within, *captured, "on 3")],
        [(call,), (*captured, "on 5")],
        [(call,), (*captured, "on 3")],
    ]
    assert len({arrow[-1]["ts"] for arrow in arrows_of(events)}) == 5, "to the first kernels alone"


def test_each_launch_has_its_own_entry_of_a_scope_that_is_entered_again(gpu: FakeGpu) -> None:
    """Its arrow begins where that one does."""
    proton.start("t", data="trace")
    graph = Graph(gpu)
    with graph:
        graph.kernel("k")
    for _ in range(3):
        with proton.scope("step"):
            graph.replay()
    proton.finalize()
    events = written()
    steps = [event for event in events if event.get("name") == "step"]
    begins = [event for event in events if event["ph"] == "s"]
    assert [(begin["tid"], begin["ts"]) for begin in begins] == [(step["tid"], step["ts"]) for step in steps]
    calls = [event["ts"] for event in events if event.get("cat") == "launch"]
    assert [event["ts"] for event in events if event["ph"] == "t"] == calls


def test_lanes_of_scopes_stand_above_those_of_their_kernels(gpu: FakeGpu) -> None:
    proton.start("t", data="trace")
    for number in (2, 10):
        graph = Graph(gpu, number)
        with graph:
            graph.kernel("k", 3)
            graph.kernel("k", 5)
        graph.replay()
    proton.finalize()
    _, *lanes = lanes_of(written()).values()
    assert lanes == [
        name
        for graph in (2, 10)
        for stream in (3, 5)
        for name in (f"Graph: Stream {stream} (GPU 0, Graph {graph})", f"GPU 0 Graph {graph} Stream {stream}")
    ]


def test_scopes_of_one_name_are_told_apart(gpu: FakeGpu) -> None:
    """Also where the time line that has them was written and begun anew before the launch."""
    proton.start("t", data="trace")
    graph = Graph(gpu)
    with graph, proton.scope("model"):
        for _ in range(3):
            with proton.scope("layer"):
                graph.kernel("k")
                graph.kernel("k")
            with proton.scope("no kernel"):
                pass
    proton.data.advance_phase()
    graph.replay(10)
    proton.finalize()
    found = ranges_of(written("t.part_1"))
    assert [(r.path[-1], r.begin, r.end) for r in found] == [
        ("<captured_at>", 0, 60),
        ("model", 0, 60),
        ("layer", 0, 20),
        ("layer", 20, 40),
        ("layer", 40, 60),
    ]


def test_each_session_has_the_scopes_that_it_saw(gpu: FakeGpu) -> None:
    """And none for a graph that was captured before it began, or is not known to be of a capture."""
    proton.start("early", data="trace")
    proton.start("tree")
    graph = Graph(gpu)
    with graph, proton.scope("layer"):
        graph.kernel("k")
    proton.start("late", data="trace")
    graph.replay()
    gpu.replay({99: "stranger"}, 1, graph=7)
    proton.finalize()
    assert [range_.path for range_ in ranges_of(written("early"))] == [
        ("ROOT", "<captured_at>"),
        ("ROOT", "<captured_at>", "layer"),
    ]
    assert ranges_of(written("late")) == []


def test_kernels_that_overlap_cut_no_range(gpu: FakeGpu) -> None:
    """As where one may begin before the one that it depends on has ended: the scopes stand on two lines."""
    proton.start("t", data="trace")
    graph = Graph(gpu)
    with graph, proton.scope("model"):
        with proton.scope("first"):
            nodes = [graph.kernel("long"), graph.kernel("short")]
        with proton.scope("second"):
            nodes.append(graph.kernel("late"))
    graph.replay()
    gpu.in_flight = [
        gpu.kernel("k", begin, end, deviceId=0, graphId=1, streamId=3, correlationId=gpu.launched, graphNodeId=node)
        for node, begin, end in zip(nodes, (1000, 1020, 1070), (1100, 1030, 1200), strict=True)
    ]
    proton.finalize()
    events = written()
    start = min(range_.begin for range_ in ranges_of(events))
    found = {r.path[-1]: (r.begin - start, r.end - start, r.lane.partition(", line")[2]) for r in ranges_of(events)}
    assert found == {
        "<captured_at>": (0, 200, ""),
        "model": (0, 200, ""),
        "first": (0, 100, ""),
        "second": (70, 200, " 2"),
    }
    check_lines([event for event in events if event["ph"] == "X"])


def test_metrics_of_a_launch_are_not_those_of_its_scope(gpu: FakeGpu, launch: Callable[..., None]) -> None:
    proton.start("t", data="trace", hook="triton")
    graph = Graph(gpu)
    with graph, proton.scope("layer"):
        given = {"name": "nice", "flops": FakeTensor(8.0), "bytes": 16}
        launch("raw", given, device="cuda:0", body=lambda: graph.kernel("raw"))
    graph.replay()
    proton.finalize()
    events = [event for event in written() if event["ph"] == "X" and "<captured_at>" in event["args"]["call_stack"]]
    assert {event["name"]: event["args"].get("metrics") for event in events} == {
        "<captured_at>": None,
        "layer": None,
        "nice": {"bytes": "16"},
        "<metric>": {"flops": "8.000000"},
    }


def test_looking_at_scopes_takes_steps_in_proportion_to_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of graphs with thousands of nodes in scopes of their own, launched several times."""
    steps = 0

    class Counting(tuple[str, ...]):
        def __getitem__(self, at):  # type: ignore[no-untyped-def]
            nonlocal steps
            steps += 1
            return super().__getitem__(at)

    def counted(nodes: int) -> int:
        nonlocal steps
        steps = 0
        timeline, lane = Timeline(), Lane("Graph: Stream 3")
        for launch in range(3):
            for at in range(nodes):
                path = Counting(("<captured_at>", "model", f"layer {at // 2}", "k"))
                begin = (launch * nodes + at) * 10
                node = GraphNode(0, 3, at, timeline, lane)
                timeline.add_device_span(path, begin, begin + 10, lane="GPU", correlation=launch, node=node)
        assert len(graph_scopes(timeline.all_events())) == 3 * (2 + nodes // 2)
        return steps

    assert counted(8000) == pytest.approx(8 * counted(1000), rel=0.01)
