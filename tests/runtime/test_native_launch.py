"""Bound launches that repeat: which of the driver's functions the machine code calls, when, and what keeps them."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeCode, FakeDriver, FakeFunctions

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import DeviceError, LaunchError
from deuteron.compiler.launch_recipe import LaunchRecipe
from deuteron.compiler.runtime.cuda import driver as cuda
from deuteron.compiler.runtime.cuda import launch as launching
from deuteron.compiler.runtime.cuda import native
from deuteron.compiler.runtime.cuda.launch import load_on_cuda
from deuteron.compiler.runtime.cuda.native import launch_of, start_graph
from deuteron.compiler.runtime.cuda.packing import ArgumentPack


def pack_of(stream: int = 7, context: int = 0, graph: int = 0x1234) -> tuple[ArgumentPack, tuple[Any, ...]]:
    """A pack with a graph, and the call of the kernel that is the same."""
    pack = ArgumentPack(128, [56, 64], 0x5000, context)
    if graph:
        start_graph(pack, graph, stream)
    config, parameters = (ctypes.addressof(memory._obj) for memory in (pack.config, pack.arguments))  # type: ignore[attr-defined]
    return pack, ("kernel", config, 0x5000, parameters, None)


def test_a_graph_is_started_and_a_kernel_where_a_stream_is_captured(machine: FakeFunctions) -> None:
    pack, kernel = pack_of()
    start = launch_of(pack)
    assert [start(), start()] == [0, 0]
    machine.capturing.add(7)
    assert start() == 0
    machine.capturing.clear()
    assert start() == 0
    graph = ("graph", 0x1234, 7)
    assert machine.calls == [graph, graph, kernel, graph]
    machine.codes["captures"] = 906  # of the default stream, while another one is captured
    assert start() == 0 and machine.calls[-1] == kernel
    with pytest.raises(TypeError):
        start(1)  # type: ignore[call-arg]


def test_a_pack_without_a_graph_is_launched(machine: FakeFunctions) -> None:
    (first, its), (second, other) = pack_of(graph=0), pack_of(graph=0, context=0x700)
    start, start_other = launch_of(first), launch_of(second)
    assert [start(), start_other(), start()] == [0, 0, 0]
    assert machine.calls == [its, ("context", 0x700), other, its]
    machine.codes["kernel"] = 719
    assert start() == 719


@pytest.mark.parametrize("what", ["graph", "kernel", "context"])
def test_codes_come_back(machine: FakeFunctions, what: str) -> None:
    start = launch_of(pack_of(stream=0, context=0x700)[0])
    machine.codes[what] = 201
    if what == "kernel":
        machine.capturing.add(0)
    assert start() == 201
    assert [call[0] for call in machine.calls] == (["context"] if what == "context" else ["context", what])
    machine.codes.clear()
    machine.capturing.clear()
    assert start() == 0 and machine.calls[-1][0] == "graph"  # nothing is left claimed


def test_who_comes_while_a_graph_is_started_launches_the_kernel(machine: FakeFunctions) -> None:
    """Another thread does, as Python goes on meanwhile."""
    pack, kernel = pack_of()
    start = launch_of(pack)

    def meanwhile() -> None:
        machine.while_starting = lambda: None
        other = threading.Thread(target=start)
        other.start()
        other.join(10)
        assert not other.is_alive()

    machine.while_starting = meanwhile
    assert start() == 0
    assert machine.calls == [("graph", 0x1234, 7), kernel]
    assert start() == 0 and machine.calls[-1] == ("graph", 0x1234, 7)


def test_a_graph_lives_as_long_as_it_may_be_started(machine: FakeFunctions) -> None:
    held = {"start": launch_of(pack_of()[0])}
    seen: list[list[Any]] = []

    def meanwhile() -> None:
        gc.collect()
        seen.append(list(machine.destroyed))

    machine.while_starting = meanwhile
    assert held.pop("start")() == 0
    assert seen == [[]]
    gc.collect()
    assert machine.destroyed == [(0x1234, 2)] and machine.capture_mode == 0  # relaxed: no capture is broken


def test_there_are_only_so_many_graphs(machine: FakeFunctions, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(native, "MOST_GRAPHS", len(native._alive) + 2)
    packs = [pack_of(graph=number)[0] for number in (1, 2)]
    assert not native.may_start_graphs()
    packs.pop()
    gc.collect()
    assert native.may_start_graphs()


TWO_THREADS = """
import sys, threading
sys.path.insert(0, "tests/runtime")
import pytest
from fake_driver import FakeCode, FakeDriver
import deuteron
from deuteron.compiler.launch_recipe import LaunchRecipe
from deuteron.compiler.runtime.cuda.launch import load_on_cuda

driver = FakeDriver([8, 4])
driver.install(pytest.MonkeyPatch())
gpu = deuteron.get_device("cuda:0")
kernels = [load_on_cuda(FakeCode({"x": "*f32", "n": "i32"}, LaunchRecipe(128)), gpu) for _ in range(4)]
begin = threading.Barrier(4)

def work(kernel):
    begin.wait()
    for number in range(200):
        kernel.launch((1, 1, 1), (0x1000, number), 3)

threads = [threading.Thread(target=work, args=(kernel,)) for kernel in kernels]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(driver.launches))
"""


def test_threads_that_need_machine_code_at_once_share_it() -> None:
    """In a process of its own: one that had the definitions of another thread's functions freed crashed."""
    place = Path(__file__).parents[2]
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", TWO_THREADS], capture_output=True, text=True, cwd=place)
        assert (done.returncode, done.stdout) == (0, "800\n"), done.stderr[-2000:]


# ---- from a bound launch to its graph --------------------------------------------------------------------------------


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The devices on which something was captured; it is launched on a stream of its own, 0x99."""
    seen: list[int] = []

    def captured(index: int, launch: Callable[[int], None]) -> int:
        launch(0x99)
        seen.append(index)
        return 0x4000 + len(seen)

    monkeypatch.setattr(launching, "captured", captured)
    return seen


def loaded(driver: FakeDriver, recipe: LaunchRecipe) -> Any:
    driver.sizes = [8, 4]
    return load_on_cuda(FakeCode({"x": "*f32", "n": "i32"}, recipe), deuteron.get_device("cuda:0"))


def test_what_repeats_on_a_stream_becomes_a_graph(
    driver: FakeDriver, machine: FakeFunctions, captures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = loaded(driver, LaunchRecipe(128))
    launch, repeats = kernel.bound((500, 1, 1), (0x1000, 40)), launching._LAUNCHES_BEFORE_MACHINE_CODE
    for _ in range(repeats - 1):
        launch(3)
    assert not captures and not machine.calls
    for _ in range(6):
        launch(3)
    for _ in range(repeats - 1):
        launch(4)
    graphs = [call for call in machine.calls if call[0] == "graph"]
    assert captures == [0] and graphs == [("graph", 0x4001, 3)] * 6
    streams = [made.stream for made in driver.launches]
    assert (streams.count(3), streams.count(4), streams.count(0x99)) == (repeats - 1, repeats - 1, 1)
    assert len({(made.grid, *made.parameters) for made in driver.launches}) == 1
    launch(4)
    assert captures == [0, 0] and machine.calls[-1] == ("graph", 0x4002, 4)
    machine.codes["graph"] = 201  # a thread that has no context: the kernel is launched behind one
    launched = len(driver.launches)
    launch(4)
    assert driver.launches[-1].stream == 4 and len(driver.launches) == launched + 1
    machine.codes["graph"] = 700
    monkeypatch.setattr(cuda, "_describe", str)
    with pytest.raises(DeviceError, match="touched memory that is not its own"):
        launch(4)


@pytest.mark.parametrize(
    "recipe",
    [LaunchRecipe(128, programmatic=True), LaunchRecipe(128, cooperative=True)],
    ids=["programmatic", "cooperative"],
)
def test_launches_that_a_graph_would_change_stay(
    driver: FakeDriver, machine: FakeFunctions, captures: list[int], recipe: LaunchRecipe
) -> None:
    launch = loaded(driver, recipe).bound((50, 1, 1), (0x1000, 40))
    for _ in range(100):
        launch(3)
    assert not captures and len(driver.launches) == 100
    assert {call[0] for call in machine.calls} == {"kernel"}


@pytest.mark.parametrize("stream", [2])
def test_a_handle_that_is_another_stream_in_each_thread_has_no_graph(
    driver: FakeDriver, machine: FakeFunctions, captures: list[int], stream: int
) -> None:
    launch = loaded(driver, LaunchRecipe(128)).bound((50, 1, 1), (0x1000, 40))
    for _ in range(100):
        launch(stream)
    assert not captures and len(driver.launches) == 100


def test_without_machine_code_launches_go_on(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(of: object) -> Any:
        raise LaunchError("no executable memory")

    monkeypatch.setattr(launching, "launch_of", refuse)
    monkeypatch.setattr(launching, "launch_of_values", refuse)
    kernel = loaded(driver, LaunchRecipe(128))
    launch = kernel.bound((50, 1, 1), (0x1000, 40))
    for number in range(100):
        launch(3)
        kernel.launch((7, 1, 1), (0x1000, number), 5)
    assert sum(made.stream in (3, 5) for made in driver.launches) == 200


@pytest.mark.parametrize("why", ["no room", "refused"])
def test_without_a_graph_launches_go_on(
    driver: FakeDriver, machine: FakeFunctions, captures: list[int], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    def refuse(index: int, launch: Callable[[int], None]) -> int:
        raise LaunchError("no")

    if why == "no room":
        monkeypatch.setattr(native, "MOST_GRAPHS", 0)
    else:
        monkeypatch.setattr(launching, "captured", refuse)
    launch = loaded(driver, LaunchRecipe(128)).bound((500, 1, 1), (0x1000, 40))
    for _ in range(100):
        launch(3)
    assert not captures and len(driver.launches) == 100
    assert {call[0] for call in machine.calls} == {"kernel"}


def test_launches_that_repeat_go_through_machine_code(
    driver: FakeDriver, machine: FakeFunctions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of functions that were made before, too."""
    kernel = loaded(driver, LaunchRecipe(128))
    direct = kernel.direct("result", 2, {"x": "v0", "n": "v1"}, (), None)
    for number in range(100):
        assert direct((number + 1,), 0x1000, number) == "result"
    kernel.launch((7, 1, 1), (0x1000, 3), 5)
    assert len(machine.calls) == 101 - launching._LAUNCHES_BEFORE_MACHINE_CODE
    found = [(made.grid[0], int.from_bytes(made.parameters[1], "little"), made.stream) for made in driver.launches]
    assert found == [*((number + 1, number, 0) for number in range(100)), (7, 3, 5)]
    machine.codes["kernel"] = 1
    monkeypatch.setattr(cuda, "_describe", str)
    with pytest.raises(LaunchError, match="the driver refused the call"):
        direct((1,), 0x1000, 1)


# ---- on a GPU --------------------------------------------------------------------------------------------------------


@deuteron.jit
def add_one(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) + 1.0, i < n)


@pytest.mark.gpu
def test_graphs_add_up() -> None:
    """In turns with other launches of the same array, and after others were made and dropped."""
    device = deuteron.get_device("cuda:0")
    x = device.array(np.zeros(1000, np.float32))
    first, second = (add_one.bound((8,), x, n, BLOCK=128) for n in (1000, 500))
    for _ in range(100):
        first()
        second()
        add_one[(8,)](x, 250, BLOCK=128)
        add_one.bound((8,), x, 1000, BLOCK=128)
    found = x.to_numpy()
    assert (found[:250] == 300).all() and (found[250:500] == 200).all() and (found[500:] == 100).all()
    for _ in range(300):  # more than there are graphs
        again = add_one.bound((8,), x, 1000, BLOCK=128)
        for _ in range(40):
            again()
    assert (x.to_numpy() - found == 300 * 40).all()


@pytest.mark.gpu
def test_bound_launches_are_captured_whatever_they_are(torch: Any) -> None:
    x = torch.zeros(1000, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        again, late = (add_one.bound((8,), x, 1000, BLOCK=128) for _ in range(2))
        for _ in range(40):
            again()
        torch.cuda.synchronize()
        x.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(40):  # the other one would become a graph in the middle of the capture
                again()
                late()
        torch.cuda.synchronize()
        assert x[0] == 0
        graph.replay()
        again()
        late()
        torch.cuda.synchronize()
        assert (x == 82).all()


@pytest.mark.gpu
def test_graphs_may_be_dropped_while_torch_captures(torch: Any) -> None:
    """torch captures in the mode that forbids this thread what might disturb a capture."""
    x = torch.zeros(1000, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kept, dropped = (add_one.bound((8,), x, 1000, BLOCK=128) for _ in range(2))
        for _ in range(40):
            kept()
            dropped()
        torch.cuda.synchronize()
        alive = len(native._alive)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept()
            del dropped
            gc.collect()
            assert len(native._alive) == alive - 1
            kept()
        graph.replay()
        torch.cuda.synchronize()
        assert (x == 82).all()


@pytest.mark.gpu
def test_threads_share_a_bound_launch() -> None:
    device = deuteron.get_device("cuda:0")
    x = device.array(np.zeros(256, np.float32))
    again = add_one.bound((2,), x, 256, BLOCK=128)
    threads = [threading.Thread(target=lambda: [again() for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (x.to_numpy() == 8000).all()
