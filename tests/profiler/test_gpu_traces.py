"""Traces of GPU launches, beside an independent account of what made-up programs launched."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu_stand_in import COPY, COPY_SIZE, LAUNCH_GRAPH, LAUNCH_KERNEL, NAMES, FakeGpu
from trace_checks import check_lines, in_ns, lanes_of, strict

import deuteron.profiler as proton
from deuteron.profiler import chrome
from deuteron.profiler.chrome import to_chrome
from deuteron.profiler.recorder import recorder
from deuteron.profiler.session import registry
from deuteron.profiler.sources.records import KIND_MEMCPY, KIND_MEMSET
from deuteron.profiler.timeline import Event, Lane, Timeline


@dataclass
class Launched:
    """One call and what it launched, as the program knows it: of each span lane, path, and start and duration in ns."""

    call: str
    thread: int
    path: tuple[str, ...]
    joined: bool
    logged: bool
    metrics: dict[str, str] | None = None
    spans: list[tuple[str, tuple[str, ...], int, int]] = field(default_factory=list)


class Program:
    """Launches at random from several threads, in scopes, to several streams, devices and graphs. Some records are
    lost, some without times, some calls are not known; all arrive in any order."""

    def __init__(self, gpu: FakeGpu, launch: Callable[..., None], draw: random.Random) -> None:
        self.gpu, self.launch, self.draw = gpu, launch, draw
        self.launched: list[Launched] = []
        self.untimed = 0
        self.clocks: dict[tuple[int, int], int] = {}
        gpu.clock = 10**6
        gpu.epoch_offset_ns = time.time_ns() - gpu.clock

    def run(self, steps: int) -> None:
        with ExitStack() as stack:
            threads = [stack.enter_context(ThreadPoolExecutor(1, f"worker {n}")) for n in range(3)]
            for _ in range(steps):
                thread = self.draw.choice([*threads, None])
                step = self.draw.choice([self.kernel, self.kernel, self.graph, self.copy, self.hooked])
                if thread is None:
                    self.scoped(step)
                else:
                    thread.submit(self.scoped, step).result()
                if self.draw.random() < 0.2:
                    self.draw.shuffle(self.gpu.in_flight)
                    self.gpu.flush()
                    recorder.gpu.drain()  # type: ignore[union-attr]
            self.draw.shuffle(self.gpu.in_flight)

    def scoped(self, step: Callable[[tuple[str, ...]], None]) -> None:
        path = tuple(self.draw.choice("abc") for _ in range(self.draw.randint(0, 2)))
        with ExitStack() as stack:
            for name in path:
                stack.enter_context(proton.scope(name))
            step(path)

    def call(self, which: int, path: tuple[str, ...]) -> Launched:
        joined, logged = self.draw.random() < 0.9, self.draw.random() < 0.9
        id_ = self.gpu.call(which, joined=joined, logged=logged)
        made = Launched(NAMES[which], threading.get_native_id(), path if joined else (), joined, logged)
        self.launched.append(made)
        assert id_ == len(self.launched)
        return made

    def kernel(self, path: tuple[str, ...]) -> None:
        self.record(self.call(LAUNCH_KERNEL, path), 0)

    def graph(self, path: tuple[str, ...]) -> None:
        made = self.call(LAUNCH_GRAPH, path)
        for _ in range(self.draw.randint(1, 4)):
            self.record(made, self.draw.randint(1, 3))

    def copy(self, path: tuple[str, ...]) -> None:
        made, kind = self.call(COPY, path), self.draw.choice([KIND_MEMCPY, KIND_MEMSET])
        lane, name = ("memcpy", "memcpy HtoD") if kind == KIND_MEMCPY else ("memset", "memset")
        device, stream, start, end = self.place()
        made.metrics = {"bytes": "77"}
        made.spans.append((f"GPU {device} Stream {stream} {lane}", (*made.path, name), start, end - start))
        self.gpu.in_flight.append(
            self.gpu.synthetic.copy(
                COPY_SIZE, kind=kind, copyKind=1, bytes=77, start=start, end=end, deviceId=device, streamId=stream,
                correlationId=len(self.launched),
            )
        )  # fmt: skip

    def hooked(self, path: tuple[str, ...]) -> None:
        """A launch of ours with metadata: its kernel has the name and the metrics from there."""
        flops, name = self.draw.randrange(1000), self.draw.choice("xy")

        def body() -> None:
            made = self.call(LAUNCH_KERNEL, path)
            if made.joined:
                made.metrics = {"flops": str(flops), "rate": "nan"}
            self.record(made, 0, name if made.joined else None)

        self.launch("raw", {"name": name, "flops": flops, "rate": float("nan")}, device="cuda:0", body=body)

    def place(self) -> tuple[int, int, int, int]:
        """A device, a stream, and the next nanoseconds there."""
        device, stream = self.draw.randint(0, 1), self.draw.choice([7, 13])
        start = self.clocks.get((device, stream), self.gpu.clock) + self.draw.randint(0, 5000)
        end = self.clocks[device, stream] = start + self.draw.randint(0, 3000)
        return device, stream, start, end

    def record(self, made: Launched, graph: int, called: str | None = None) -> None:
        if self.draw.random() < 0.1:
            return  # lost
        device, stream, start, end = self.place()
        name = self.draw.choice(["k", "gemm<float>", 'é"\\'])
        if self.draw.random() < 0.1:
            start = end = 0
            self.untimed += 1
        else:
            of_graph = f" Graph {graph}" if graph else ""
            path = (*made.path, called or name)
            made.spans.append((f"GPU {device}{of_graph} Stream {stream}", path, start, end - start))
        self.gpu.in_flight.append(
            self.gpu.kernel(
                name, start, end, deviceId=device, streamId=stream, graphId=graph, correlationId=len(self.launched)
            )
        )


@pytest.mark.parametrize("seed", range(4))
def test_a_trace_is_what_the_program_launched(
    seed: int, synthetic: SimpleNamespace, launch: Callable[..., None]
) -> None:
    gpu = FakeGpu(synthetic)
    recorder.start_gpu(required=True, source=gpu)
    proton.start("t", data="trace", hook="triton")
    program = Program(gpu, launch, random.Random(seed))
    program.run(60)
    proton.finalize()
    check_trace(Path("t.chrome_trace").read_text(), program)


def check_trace(text: str, program: Program) -> None:
    document = strict(text)
    events = document["traceEvents"]
    lanes = lanes_of(events)
    base = document["baseTimeNanoseconds"] - program.gpu.epoch_offset_ns
    assert document.get("otherData", {}).get("launches_without_times", 0) == program.untimed
    assert {event["pid"] for event in events} == {os.getpid()}

    spans = [event for event in events if event["ph"] == "X"]
    calls = {event["args"]["correlation"]: event for event in spans if event["cat"] == "launch"}
    assert set(calls) == {id_ for id_, made in enumerate(program.launched, 1) if made.logged}
    of_gpu: defaultdict[int, list[dict]] = defaultdict(list)
    for event in spans:
        if event["cat"] in ("kernel", "memcpy", "memset"):
            of_gpu[event["args"]["correlation"]].append(event)

    arrows = []
    for id_, made in enumerate(program.launched, 1):
        found = [
            (
                lanes[event["tid"]].split(",")[0],
                tuple(event["args"]["call_stack"]),
                in_ns(event["ts"]) + base,
                in_ns(event["dur"]),
            )
            for event in of_gpu[id_]
        ]
        expected = [(lane, ("ROOT", *path), start, duration) for lane, path, start, duration in made.spans]
        assert sorted(found) == sorted(expected), "each span once, on its lane, to the nanosecond"
        assert all(event["args"].get("metrics") == made.metrics for event in of_gpu[id_])
        assert all(event["name"] == event["args"]["call_stack"][-1] for event in of_gpu[id_])
        if made.logged:
            call = calls[id_]
            assert call["args"]["call_stack"][-1] == call["name"] == made.call
            assert call["tid"] == made.thread and lanes[call["tid"]].startswith(f"CPU Thread {made.thread} (")
            firsts: dict[str, dict] = {}
            for event in sorted(of_gpu[id_], key=lambda event: (event["ts"], -event["dur"])):
                firsts.setdefault(lanes[event["tid"]].split(",")[0], event)
            arrows += [(call["tid"], call["ts"], event["tid"], event["ts"]) for event in firsts.values()]
    assert sorted(arrows_of(events)) == sorted(arrows), "from each known call to its first span of each lane, no others"
    check_lines(spans)


def arrows_of(events: list[dict]) -> list[tuple]:
    """Lane and time of the beginning of each arrow, and of its end."""
    ends: defaultdict[int, dict[str, dict]] = defaultdict(dict)
    for event in events:
        if event["ph"] in ("s", "f"):
            assert event["ph"] not in ends[event["id"]], "an id is one arrow's"
            ends[event["id"]][event["ph"]] = event
    assert all(arrow["f"]["bp"] == "e" for arrow in ends.values())
    return [(a["s"]["tid"], a["s"]["ts"], a["f"]["tid"], a["f"]["ts"]) for a in ends.values()]


def test_arrows_begin_within_their_call(synthetic: SimpleNamespace) -> None:
    """Of one launch in full, as a reader of the file would look at it."""
    gpu = FakeGpu(synthetic)
    recorder.start_gpu(required=True, source=gpu)
    proton.start("t", data="trace")
    with proton.scope("A"):
        gpu.epoch_offset_ns = time.time_ns() - gpu.clock
        gpu.launch("k", 2000)
    proton.finalize()
    events = strict(Path("t.chrome_trace").read_text())["traceEvents"]
    scope, call, kernel = (
        next(event for event in events if event.get("cat") == category) for category in ("scope", "launch", "kernel")
    )
    begin, end = (next(event for event in events if event["ph"] == phase) for phase in "sf")
    assert scope["ts"] <= call["ts"] <= begin["ts"] <= call["ts"] + call["dur"] <= scope["ts"] + scope["dur"]
    assert scope["tid"] == call["tid"] == begin["tid"] == threading.get_native_id()
    assert (end["tid"], end["ts"]) == (kernel["tid"], kernel["ts"])
    assert call["args"]["call_stack"] == ["ROOT", "A", "cuLaunchKernel"]


def test_only_traces_ask_for_what_they_show(synthetic: SimpleNamespace) -> None:
    gpu = FakeGpu(synthetic)
    recorder.start_gpu(required=True, source=gpu)
    proton.start("tree")
    assert not gpu.tracing
    trace = proton.start("trace", data="trace")
    assert gpu.tracing
    proton.deactivate(trace)
    assert not gpu.tracing
    proton.activate(trace)
    assert gpu.tracing
    proton.finalize(trace)
    assert not gpu.tracing


def test_what_a_trace_adds_is_not_in_trees(synthetic: SimpleNamespace, tree: Callable[..., dict]) -> None:
    """Trees have kernels only, those without times, too; sessions of what kernels record have none."""
    gpu = FakeGpu(synthetic)
    recorder.start_gpu(required=True, source=gpu)
    proton.start("tree")
    proton.start("trace", data="trace")
    inside = proton.start("inside", data="trace", backend="instrumentation")
    gpu.call(COPY)
    gpu.in_flight.append(gpu.synthetic.copy(COPY_SIZE, kind=KIND_MEMCPY, copyKind=1, bytes=7, start=1, end=2,
                                            deviceId=0, streamId=7, correlationId=1))  # fmt: skip
    gpu.launch("k", 5)
    gpu.in_flight.append(gpu.kernel("k", 0, 0, deviceId=0, streamId=7, correlationId=2))
    gpu.in_flight.append(gpu.kernel("k", 9, 0, deviceId=0, streamId=7, correlationId=2))
    recorder.flush()
    assert [child["frame"]["name"] for child in tree()["children"]] == ["k"]
    assert (tree("k")["metrics"]["count"], tree("k")["metrics"]["time (ns)"]) == (3, 5)
    phase = registry.get(inside).phases[0]
    assert phase.timeline is not None and phase.timeline.is_empty and not phase.profile.root.children


def test_tasks_of_one_thread_have_lines_of_their_own() -> None:
    """Scopes that lie neither apart nor within each other would be cut by a viewer."""

    async def work(name: str, begun: asyncio.Event, wait: asyncio.Event) -> None:
        with proton.scope(name):
            begun.set()
            await wait.wait()

    async def both() -> None:
        a, b, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(work("first", a, b))
        await a.wait()
        second = asyncio.create_task(work("second", b, ended))
        await first
        ended.set()
        await second

    proton.start("t", data="trace")
    asyncio.run(both())
    proton.finalize()
    events = strict(Path("t.chrome_trace").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    check_lines(spans)
    lanes = lanes_of(events)
    assert [lanes[event["tid"]].rpartition(")")[2] for event in spans] == ["", ", line 2"]


def test_kernels_that_run_at_once_on_a_stream_stand_side_by_side() -> None:
    """One that begins before the other ends is none of its parts, even if it ends before it too."""
    timeline = Timeline()
    for name, start, end in (("long", 0, 100), ("short", 20, 30), ("next", 100, 120), ("beside", 30, 110)):
        timeline.add_device_span((name,), start, end, lane="GPU 0 Stream 7")
    events = strict(to_chrome(timeline))["traceEvents"]
    lanes = lanes_of(events)
    assert {event["name"]: lanes[event["tid"]] for event in events if event["ph"] == "X"} == {
        "long": "GPU 0 Stream 7",
        "short": "GPU 0 Stream 7, line 2",
        "beside": "GPU 0 Stream 7, line 2",
        "next": "GPU 0 Stream 7",
    }


def test_names_of_threads_that_share_a_number_are_all_there() -> None:
    timeline = Timeline()
    timeline.add_call(("a",), 1, 2, thread=threading.get_native_id(), correlation=1)
    before = threading.current_thread().name
    threading.current_thread().name = "other"
    try:
        timeline.add_span(("b",), 3, 4, category="scope")
    finally:
        threading.current_thread().name = before
    timeline.add_call(("c",), 1, 2, thread=2**22 - 1, correlation=2)  # has ended: nobody knows its name
    lanes = lanes_of(strict(to_chrome(timeline))["traceEvents"])
    assert sorted(lanes.values()) == sorted(
        [f"CPU Thread {threading.get_native_id()} ({before}, other)", f"CPU Thread {2**22 - 1}"]
    )


@pytest.mark.parametrize("by_path", [False, True])
def test_a_span_that_outlasts_the_one_around_it_has_a_line_of_its_own(by_path: bool) -> None:
    """Viewers want the spans of one line to lie apart or within each other."""
    lane = Lane("thread")
    spans = [(("a",), 0, 100), (("a", "b"), 10, 20), (("a", "c"), 50, 100), (("a", "d"), 160, 10)]
    drawn = chrome._drawn([Event(path, start, long, lane, "scope") for path, start, long in spans], by_path)
    assert [line.part for line, _ in drawn] == [0, 0, 1, 0]
