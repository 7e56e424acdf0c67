"""The gate that holds launches back: on a pretended driver its tickets, on a GPU what it is for."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import DeviceError
from deuteron.compiler.options import Schedule
from deuteron.compiler.runtime.cuda import driver as cuda
from deuteron.compiler.runtime.cuda import gate as gates
from deuteron.compiler.runtime.cuda.device import CudaDevice
from deuteron.compiler.runtime.cuda.gate import MOST_NS, Gate
from deuteron.compiler.target import Target
from deuteron.compiler.targets.nvptx.assemble import assemble


@deuteron.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 2.0 * tl.load(x + i, i < n), i < n)


class Driver:
    """Gates that were launched, by ticket; each is open as soon as the host's word is its ticket or a later one."""

    def __init__(self) -> None:
        self.word = ctypes.c_uint64()
        self.launched: list[tuple[int, int, int, int]] = []

    def call(self, name: str, *arguments: object) -> object:
        if name == "cuLaunchKernel":
            values, types = arguments[-2]  # type: ignore[misc]
            assert types == (ctypes.c_uint64,) * 4 and values[0] == ctypes.addressof(self.word)
            self.launched.append((arguments[8], *values[1:]))  # type: ignore[arg-type]
        return 7

    def integer(self, name: str, *arguments: object) -> int:
        assert (name, arguments) == ("cuMemHostAlloc", (8, 3))
        return ctypes.addressof(self.word)

    def is_open(self, launch: int) -> bool:
        return self.word.value >= self.launched[launch][1]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    for name in ("call", "integer"):
        monkeypatch.setattr(gates.cuda, name, getattr(made, name))
    monkeypatch.setattr(gates.cuda, "make_current", lambda index: None)
    monkeypatch.setattr(cuda.streams, "current", lambda index: 40 + index)
    return made


def test_a_gate_is_closed_until_its_context_ends(driver: Driver) -> None:
    gate = Gate(1)
    with gate.closed():
        assert not driver.is_open(0)
    assert driver.is_open(0)
    with pytest.raises(KeyError), gate.closed(1234.5):
        assert not driver.is_open(1)
        raise KeyError
    assert driver.is_open(1)
    assert [launched[0] for launched in driver.launched] == [41, 41]
    assert [launched[2:] for launched in driver.launched] == [(0, MOST_NS), (1234, 1234 + MOST_NS)]


def test_without_a_gate_nothing_is_held_back(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may have been told to assemble nothing."""

    def refuse(name: str, *arguments: object) -> object:
        raise DeviceError("the driver reported an error: CUDA_ERROR_JIT_COMPILER_NOT_FOUND")

    monkeypatch.setattr(gates.cuda, "call", refuse)
    device = CudaDevice(0)
    with device.held_back(1000.0), device.held_back():
        assert not driver.launched


def test_a_gate_that_is_open_stays_open_whoever_opens_others(driver: Driver) -> None:
    """Gates of two threads are opened in any order; no later one is closed again by an earlier one."""
    gate = Gate(0)
    first, second = gate.closed(), gate.closed()
    first.__enter__()
    second.__enter__()
    second.__exit__(None, None, None)
    assert driver.is_open(1)
    first.__exit__(None, None, None)
    assert driver.is_open(0) and driver.is_open(1)


@pytest.mark.parametrize("arch", ["cuda:80", "cuda:90a", "cuda:120"])
def test_its_kernel_assembles(arch: str) -> None:
    made = assemble(gates._PTX.rstrip(b"\0").decode(), Target.parse(arch), Schedule())
    assert made.image[:4] == b"\x7fELF" and made.spill_bytes == 0


@pytest.mark.gpu
def test_what_the_host_does_between_events_is_not_timed() -> None:
    device = deuteron.get_device("cuda:0")
    x = device.array(np.ones(64, np.float32))
    launch, timer = double.bound((1,), x, 64, BLOCK=64), device.timer()
    launch()
    times = {True: [], False: []}
    for held in (True, False) * 5:
        device.flush_l2()
        with device.held_back() if held else threading.Lock():
            timer.start()
            time.sleep(0.004)
            launch()
            timer.stop()
        times[held].append(timer.elapsed_ns())
    assert max(times[True]) < 100_000 and min(times[False]) > 3_000_000
    assert x.to_numpy()[0] == 2.0**11


@pytest.mark.gpu
def test_a_gate_rests_and_opens_by_itself() -> None:
    """Waiting for the device inside is slow, and no deadlock."""
    device = deuteron.get_device("cuda:0")
    device.synchronize()
    with device.held_back(3_000_000.0):
        pass
    began = time.perf_counter()
    device.synchronize()
    assert 0.002 < time.perf_counter() - began < 0.3
    began = time.perf_counter()
    with device.held_back():
        device.synchronize()
    assert MOST_NS / 1e9 * 0.9 < time.perf_counter() - began < 1.0
