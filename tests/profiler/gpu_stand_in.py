"""A source of GPU records without a GPU: made-up buffers and logs instead of CUPTI's."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType, SimpleNamespace

import numpy as np

from deuteron.profiler import CuptiError
from deuteron.profiler.sources.callbacks import call_dtype, node_dtype
from deuteron.profiler.sources.records import KIND_CONCURRENT_KERNEL, Batch, parse_records

SIZE = 216
COPY_SIZE = 96
LAUNCH_KERNEL, LAUNCH_GRAPH, COPY = 307, 514, 277
NO_STREAMS: Mapping[int, int] = MappingProxyType({})
NAMES = {LAUNCH_KERNEL: "cuLaunchKernel", LAUNCH_GRAPH: "cuGraphLaunch", COPY: "cuMemcpyHtoDAsync_v2"}


class FakeGpu:
    """Launches are logged with the number last set on their thread, and their records handed over by a flush."""

    def __init__(self, synthetic: SimpleNamespace) -> None:
        self.synthetic = synthetic
        self.places = threading.local()
        self.launched = 0
        self.clock = 1000
        self.epoch_offset_ns = 0
        self.log: list[str] = []
        self.arrived: list[np.ndarray] = []
        self.in_flight: list[bytes] = []
        self.log_of_launches: list[tuple[int, int]] = []
        self.log_of_calls: list[tuple[int, ...]] = []
        self.tracing = False
        self.broken = False
        self.names: dict[str, ctypes.Array] = {}
        self.main = SimpleNamespace(value=0)
        self.nodes = 0
        self.log_of_nodes: list[tuple[int, int, int, int]] = []

        self.metrics = FakeMetrics(self)

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> None:
        self.log.append("stop")

    def warn_dropped(self) -> None:
        pass

    def follow_ranges(self, push: Callable[[str], None], pop: Callable[[], None]) -> None:
        self.push_range, self.pop_range = push, pop

    def trace(self, wanted: bool) -> None:
        self.tracing = wanted

    def cell(self) -> SimpleNamespace:
        self.places.cell = SimpleNamespace(value=0)
        return self.places.cell

    @property
    def place(self) -> SimpleNamespace:
        """The calling thread's cell, or that of the main thread where it has no cell, or 0 in it."""
        own = getattr(self.places, "cell", self.main)
        return own if own.value else self.main

    @property
    def number(self) -> int:
        return self.place.value

    def call(self, call: int = LAUNCH_KERNEL, *, joined: bool = True, logged: bool = True) -> int:
        """A call of the driver by this thread; returns its correlation id."""
        self.launched += 1
        begin = time.perf_counter_ns()
        if joined and self.number:
            self.log_of_launches.append((self.launched, self.number))
        if logged and self.tracing:
            number, thread = self.number if joined else 0, threading.get_native_id()
            self.log_of_calls.append((self.launched, number, thread, call, begin, time.perf_counter_ns()))
        return self.launched

    def kernel(self, name: str, start: int, end: int, **fields: int) -> bytes:
        """The record of a kernel."""
        text = self.names.setdefault(name, ctypes.create_string_buffer(name.encode()))
        return self.synthetic.kernel(SIZE, start=start, end=end, name=ctypes.addressof(text), **fields)

    def capture(self) -> int:
        """A node of a graph is captured, and copied into an executable one; returns the id of the copy."""
        self.nodes += 2
        now = time.perf_counter_ns()
        later = now + 10**9  # when the executable graph is made
        self.log_of_nodes += [(self.nodes - 1, 0, self.number, now), (self.nodes, self.nodes - 1, 0, later)]
        return self.nodes

    def replay(
        self, nodes: dict[int, str], duration_ns: int, graph: int = 1, streams: Mapping[int, int] = NO_STREAMS
    ) -> None:
        """A launch of a graph: the kernel of each node, one after the other, on its stream, which is 3 if not told."""
        id_ = self.call(LAUNCH_GRAPH)
        for node, name in nodes.items():
            end = self.clock + duration_ns
            stream = streams.get(node, 3)
            given = {"streamId": stream, "correlationId": id_, "graphNodeId": node, "graphId": graph}
            self.in_flight.append(self.kernel(name, self.clock, end, deviceId=0, **given))
            self.clock = end
        self.metrics.replayed(nodes)

    def launch(self, name: str, duration_ns: int, device: int = 0, kernels: int = 1, joined: bool = True) -> None:
        """A launch of one kernel, or of a graph with several."""
        id_ = self.call(joined=joined)
        for _ in range(kernels):
            end = self.clock + duration_ns
            self.in_flight.append(self.kernel(name, self.clock, end, deviceId=device, streamId=3, correlationId=id_))
            self.clock = end

    def flush(self) -> None:
        self.log.append("flush")
        if self.in_flight:
            self.arrived.append(self.synthetic.buffer(*self.in_flight))
            self.in_flight = []

    def drain(self) -> Batch:
        if self.broken:
            raise CuptiError("unreadable")
        arrived, self.arrived = self.arrived, []
        launches, self.log_of_launches = self.log_of_launches, []
        calls, self.log_of_calls = self.log_of_calls, []
        nodes, self.log_of_nodes = self.log_of_nodes, []
        parsed = [parse_records(buffer, SIZE, _places) for buffer in arrived]
        return Batch(
            [kernels for kernels, _ in parsed],
            np.array(launches, np.uint32).reshape(-1, 2),
            self.epoch_offset_ns,
            [copies for _, copies in parsed],
            np.array(calls, call_dtype()),
            NAMES,
            np.array(nodes, node_dtype()),
            self.metrics.take(),
        )

    def take_lost(self) -> bool:
        return False


class Graph:
    """A graph in the making: what is launched in the block is captured."""

    def __init__(self, gpu: FakeGpu, number: int = 1) -> None:
        self.gpu, self.number = gpu, number
        self.nodes: dict[int, str] = {}
        self.streams: dict[int, int] = {}

    def __enter__(self) -> Graph:
        self.gpu.metrics.capturing, self.before = True, set(self.gpu.metrics.nodes)
        return self

    def __exit__(self, *error: object) -> None:
        self.gpu.metrics.capturing = False
        self.nodes |= dict.fromkeys(set(self.gpu.metrics.nodes) - self.before, "tell_metric")

    def kernel(self, name: str, stream: int = 3) -> int:
        """Capture a kernel that will run on a stream; returns the id of its node."""
        node = self.gpu.capture()
        self.nodes[node], self.streams[node] = name, stream
        return node

    def replay(self, duration_ns: int = 1) -> None:
        """Launch the graph; kernels run in the order of the capture."""
        self.gpu.replay(dict(sorted(self.nodes.items())), duration_ns, self.number, self.streams)


class FakeTensor:
    """A tensor on the GPU; its elements may change."""

    is_cuda = True

    def __init__(self, *elements: float) -> None:
        self.elements = list(elements)

    def data_ptr(self) -> int:
        return id(self)

    def tolist(self) -> list[float]:
        raise AssertionError("reading it waits for the GPU")

    def is_floating_point(self) -> bool:
        return any(isinstance(element, float) for element in self.elements)


class FakeMetrics:
    """Kernels that tell metrics: launched at once, or captured as nodes of ``nodes``, by which they are replayed."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.capturing = False
        self.nodes: dict[int, tuple[int, FakeTensor, bool] | None] = {}
        self.told: list[tuple[int, np.ndarray]] = []

    def is_capturing(self, stream: int | None = None) -> bool:
        return self.capturing

    def write(self, number: int, tensor: FakeTensor, as_float: bool, stream: int | None = None) -> None:
        if self.capturing:
            self.nodes[self.gpu.capture()] = number, tensor, as_float
        else:
            self.gpu.launch("_leave", 1)
            self.tell(number, tensor, as_float)

    def mark(self, stream: int | None = None) -> None:
        self.nodes[self.gpu.capture()] = None

    def tell(self, number: int, tensor: FakeTensor, as_float: bool) -> None:
        words = np.array(tensor.elements, np.float64 if as_float else np.int64).view(np.int64)
        self.told.append((number, words))

    def replayed(self, nodes: Iterable[int]) -> None:
        """The graph of these nodes is launched: what is captured in it tells its metrics."""
        for node in nodes:
            asked = self.nodes.get(node)
            if asked is not None:
                self.tell(*asked)

    def take(self) -> list[tuple[int, np.ndarray]]:
        told, self.told = self.told, []
        return told


def _places(buffer: np.ndarray) -> Iterator[int]:
    """Where records begin, of the two sizes that there are here."""
    at = 0
    while at < len(buffer):
        yield at
        at += SIZE if int.from_bytes(bytes(buffer[at : at + 4]), "little") == KIND_CONCURRENT_KERNEL else COPY_SIZE
