"""Launches that machine code packs on its stack: the driver reads the same as of those that Python's struct packs."""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import threading
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeCode, FakeDriver, FakeFunctions

import deuteron
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.launch_recipe import LaunchRecipe
from deuteron.compiler.runtime.cuda import launch as launching
from deuteron.compiler.runtime.cuda.launch import load_on_cuda
from deuteron.compiler.runtime.cuda.native import MISFIT, launch_of_values
from deuteron.compiler.runtime.cuda.packing import PackingPlan, attribute_bytes, block_bytes, layout_of
from deuteron.compiler.signature import parse_argument_type

TYPES = {"*f32": 8, "i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8, "f32": 4}
TYPES |= {"f64": 8, "bf16": 2}  # the bits of the latter


def started(driver: FakeDriver, types: list[str], descriptors: int = 0, context: int = 0) -> Any:
    """A launch of values for these parameters: 96 threads and 40 bytes of shared memory."""
    driver.sizes = [TYPES[name] for name in types] + [128] * descriptors
    layout = layout_of([parse_argument_type(name) for name in types], descriptors)
    return launch_of_values(PackingPlan(layout, 0x5000, context, block_bytes(96, 40), attribute_bytes(None)))


def bounds(name: str) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bits = 8 * TYPES[name]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if name.startswith("i") else (0, (1 << bits) - 1)


INTEGERS = [name for name in TYPES if name[0] in "iu" and name != "i1"] + ["*f32", "bf16"]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_passed_or_refused(driver: FakeDriver, name: str) -> None:
    start, (low, high) = started(driver, [name, "i32"]), bounds(name)
    inside = [low, low + 1, 0, 1, high - 1, high, *([-1] if low else [])]
    for value in inside:
        assert start(3, 2, 1, 7, value, -1) == 0
        made = driver.launches[-1]
        assert int.from_bytes(made.parameters[0], "little", signed=low < 0) == value
        assert made.parameters[1] == b"\xff" * 4
        assert (made.grid, made.block, made.shared, made.stream, made.attributes) == ((3, 2, 1), (96, 1, 1), 40, 7, {})
    launched = len(driver.launches)
    for value in (low - 1, high + 1, -1 << 63, 1 << 63, 1 << 64, -1 << 70, 1 << 70, 1.5, "1", None, [3]):
        if isinstance(value, int) and low <= value <= high:
            continue
        assert start(3, 2, 1, 7, value, 1) == MISFIT
        assert sys.exc_info() == (None, None, None)
    assert len(driver.launches) == launched


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_floats_are_rounded_as_casts_in_c_do(driver: FakeDriver, name: str) -> None:
    start, dtype = started(driver, [name]), {"f32": np.float32, "f64": np.float64}[name]
    rng = np.random.default_rng(0)
    values = [-1.0, 0.0, -0.0, 1.5, 3, -1, 1e40, -1e40, 1e308, np.inf, -np.inf, np.nan, 5e-324, 1e-45, 1 + 2**-24]
    values += [float(x) for x in rng.integers(0, 1 << 64, 300, np.uint64).view(np.float64)]
    with np.errstate(over="ignore", invalid="ignore"):
        for value in values:
            assert start(1, 1, 1, 0, value) == 0
            found = np.frombuffer(driver.launches[-1].parameters[0], dtype)[0]
            np.testing.assert_array_equal(found, dtype(value))
            assert np.signbit(found) == np.signbit(dtype(value)) or np.isnan(value)
    for value in ("1", None, 1 << 2000):
        assert start(1, 1, 1, 0, value) == MISFIT
    assert len(driver.launches) == len(values)


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("neither")


def test_truth_and_bytes(driver: FakeDriver) -> None:
    start = started(driver, ["i1", "i1"], descriptors=2)
    first, second = bytes(range(128)), bytes(range(128, 256))
    assert start(1, 1, 1, 0, True, 0, first, second) == 0
    assert driver.launches[-1].parameters == [b"\1", b"\0", first, second]
    assert start(1, 1, 1, 0, Undecided(), 0, first, second) == MISFIT
    assert start(1, 1, 1, 0, True, 0, first, 5) == MISFIT
    assert len(driver.launches) == 1


def test_any_parameters_are_where_struct_has_them(driver: FakeDriver) -> None:
    """The driver that runs nothing looks whether each is at a multiple of its size."""
    rng = np.random.default_rng(1)
    names = [name for name in TYPES if name != "i1"]
    for _ in range(200):
        types = [names[i] for i in rng.integers(0, len(names), rng.integers(0, 12))]
        start = started(driver, types)
        values: list[Any] = []
        for name in types:
            if name in ("f32", "f64"):
                values.append(float(np.float32(rng.normal())))
            else:
                low, high = bounds(name)
                values.append(int(rng.integers(low, high, dtype=np.uint64 if low == 0 else np.int64, endpoint=True)))
        x, y, z, stream = (int(n) for n in rng.integers(1, 1 << 16, 4))
        assert start(x, y, z, stream, *values) == 0
        made = driver.launches[-1]
        assert (made.grid, made.stream) == ((x, y, z), stream)
        letters = {1: "b", 2: "h", 4: "i", 8: "q"}
        for name, value, found in zip(types, values, made.parameters, strict=True):
            letter = name[-2:] == "32" and name == "f32" and "f" or name == "f64" and "d" or letters[TYPES[name]]
            letter = letter.upper() if bounds(name)[0] == 0 and letter not in "fd" else letter
            assert found == struct.pack(f"<{letter}", value), (types, name)


def test_sizes_and_streams_are_whole(driver: FakeDriver) -> None:
    start = started(driver, [])
    assert start(2**31 - 1, 65535, 65535, 2**64 - 1) == 0
    assert (driver.launches[-1].grid, driver.launches[-1].stream) == ((2**31 - 1, 65535, 65535), 2**64 - 1)
    for passed in ((1, 1), (1, 1, 1, 0, 0), (), (-1, 1, 1, 0), (1, 1.0, 1, 0), (1, 1, 1, None), (1, 1, 1 << 32, 0)):
        assert start(*passed) == MISFIT
    assert len(driver.launches) == 1
    with pytest.raises(TypeError):
        start(x=1)


def test_the_context_comes_before_the_kernel_and_codes_come_back(driver: FakeDriver, machine: FakeFunctions) -> None:
    start = started(driver, ["i32"], context=0x701)
    assert start(1, 1, 1, 0, 5) == 0
    assert [call[0] for call in machine.calls] == ["context", "kernel"] and driver.contexts == [1]
    assert machine.calls[1][2] == 0x5000
    machine.codes["kernel"] = 719
    assert start(1, 1, 1, 0, 5) == 719
    machine.codes["context"] = 201
    machine.calls.clear()
    assert start(1, 1, 1, 0, 5) == 201 and [call[0] for call in machine.calls] == ["context"]


def test_attributes_are_the_kernels(driver: FakeDriver) -> None:
    kernel = load_on_cuda(FakeCode({"n": "i32"}, LaunchRecipe(64, cluster=2)), deuteron.get_device("cuda:0"))
    driver.sizes = [4]
    for number in range(100):
        kernel.launch((2 * number + 2, 1, 1), (number,), 3)
        gc.collect(0)
    assert len(driver.functions.calls) == 100 - launching._LAUNCHES_BEFORE_MACHINE_CODE
    assert {made.cluster for made in driver.launches} == {(2, 1, 1)}
    assert [made.grid[0] for made in driver.launches] == [2 * n + 2 for n in range(100)]


def test_what_does_not_fit_is_said_after_machine_code_refused_it(driver: FakeDriver) -> None:
    driver.sizes = [1, 4]
    kernel = load_on_cuda(FakeCode({"n": "i8", "s": "f32"}, LaunchRecipe(64)), deuteron.get_device("cuda:0"))
    for _ in range(40):
        kernel.launch((1, 1, 1), (3, 2.0), 3)
    with pytest.raises(LaunchError, match="kernel: argument 'n': int 300 does not fit i8"):
        kernel.launch((1, 1, 1), (300, 2.0), 3)
    with pytest.raises(LaunchError, match="launching on the stream 'x'"):
        kernel.launch((1, 1, 1), (3, 2.0), "x")  # type: ignore[arg-type]
    kernel.launch((1, 1, 1), (3, 1e40), 3)
    assert driver.launches[-1].parameters == [b"\3", struct.pack("f", np.inf)] and len(driver.launches) == 41


def test_floats_of_16_bits_stay_with_python(driver: FakeDriver, machine: FakeFunctions) -> None:
    driver.sizes = [2]
    kernel = load_on_cuda(FakeCode({"s": "f16"}, LaunchRecipe(64)), deuteron.get_device("cuda:0"))
    for number in range(100):
        value = number if number % 2 else number / 4
        kernel.launch((1, 1, 1), (value,), 3)
        assert driver.launches[-1].parameters == [struct.pack("e", value)]
    assert not machine.calls


@pytest.mark.parametrize("count", [500, 4000])
def test_many_parameters_are_launched_from_small_stacks(driver: FakeDriver, machine: FakeFunctions, count: int) -> None:
    """Those of up to 4 KB go to machine code."""
    driver.sizes = [8] * count
    types = {f"n{i}": "i64" for i in range(count)}
    kernel = load_on_cuda(FakeCode(types, LaunchRecipe(64)), deuteron.get_device("cuda:0"))
    for first in range(40):
        kernel.launch((1, 1, 1), tuple(range(first, first + count)), 3)
    assert bool(machine.calls) == (count == 500)
    before = threading.stack_size(32768)
    try:
        thread = threading.Thread(target=kernel.launch, args=((1, 1, 1), tuple(range(count)), 3))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(driver.launches) == 41
    assert [int.from_bytes(part, "little") for part in driver.launches[-1].parameters] == list(range(count))


def test_threads_do_not_share_the_stack(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are in the driver at once, and each still finds there what it passed."""
    start, count, rounds = started(driver, ["*f32", "i32"]), 4, 50
    together, launch, lock = threading.Barrier(count), driver.cuLaunchKernelEx, threading.Lock()
    found: list[tuple[int, int, int]] = []

    def late(*arguments: Any) -> int:
        together.wait(timeout=60)
        with lock:
            launch(*arguments)
            made = driver.launches[-1]
            found.append((made.grid[0], *(int.from_bytes(part, "little") for part in made.parameters)))
        return 0

    monkeypatch.setattr(driver, "cuLaunchKernelEx", late)

    def work(place: int) -> None:
        for i in range(rounds):
            start(place + 1, 1, 1, 0, 0x7000 + place, i)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted((p + 1, 0x7000 + p, i) for p in range(count) for i in range(rounds))


def test_nothing_is_kept_of_what_is_passed(driver: FakeDriver) -> None:
    start, held = started(driver, [], descriptors=1), bytes(range(128))
    value, before = ctypes.py_object(held), sys.getrefcount(held)
    for _ in range(1000):
        start(1, 1, 1, 0, held)
        start(1, 1, 1, 0, held, held)
    assert sys.getrefcount(held) == before and value.value is held
