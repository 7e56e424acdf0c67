"""The one function that a GPU launch is, from the grid to the driver: nothing of one launch is left in the next. On a
driver that runs nothing."""

from __future__ import annotations

import struct
import sys
import threading
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeDriver, FakeGpu, give_recipes
from fake_torch import Tensor

import deuteron
import deuteron.language as tl
from deuteron.compiler.epoch import Switch
from deuteron.compiler.errors import DeviceError, LaunchError
from deuteron.compiler.launch_recipe import PROGRAMS, Guard, LaunchRecipe
from deuteron.compiler.runtime import devices
from deuteron.compiler.runtime.cuda import driver as cuda
from deuteron.compiler.runtime.launch import launcher


def scale(x, n, by, BLOCK: tl.constexpr = 32):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * by, mask=i < n)


@pytest.fixture
def kernel(driver: FakeDriver) -> deuteron.JITFunction:
    driver.sizes = [8, 4, 4]
    return deuteron.JITFunction(scale)


def read(driver: FakeDriver) -> tuple[int, int, float]:
    """The arguments of the last launch."""
    x, n, by = driver.launches[-1].parameters
    return *struct.unpack("Qi", x + n), *struct.unpack("f", by)


def test_every_launch_asks_for_the_stream(driver: FakeDriver, kernel: deuteron.JITFunction) -> None:
    x = Tensor()
    for stream in (0, 5, 5, 2**40, 0):
        driver.stream = stream
        kernel[(1,)](x, 40, 2.0)
    assert [made.stream for made in driver.launches] == [0, 5, 5, 2**40, 0]
    assert len({made.arguments for made in driver.launches}) == 1  # memory is used again


def fill(address, by, BLOCK: tl.constexpr = 32):
    tl.store(address.to(tl.pointer_type(tl.float32)) + tl.arange(0, BLOCK), by)


def test_launches_without_arrays_go_to_the_device_that_is_current(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.install(monkeypatch, gpus=2)
    monkeypatch.setitem(devices._known, "cuda:1", FakeGpu(1))
    monkeypatch.setattr(devices, "_preferred", Switch(None))
    current = ["cuda:0"]
    devices.prefer(lambda: current[0])
    driver.sizes = [8, 4]
    kernel = deuteron.JITFunction(fill)
    for name in ("cuda:0", "cuda:1", "cuda:1", "cuda:0"):
        current[0] = name
        kernel[(1,)](0x7F0000000000, 1.5)
    assert driver.contexts == [0, 1, 1, 0]
    current[0] = "cuda:1"
    bound = kernel.bound((1,), 0x7F0000000000, 1.5)
    current[0] = "cuda:0"
    bound()
    compiled = next(iter(kernel.cache.values()))
    assert isinstance(compiled, deuteron.CompiledKernel)
    compiled.run((1,), 0x7F0000000000, 1.5)
    assert driver.contexts[4:] == [1, 0]


@pytest.mark.parametrize("raw", [True, False])
def test_the_stream_is_torchs_as_soon_as_torch_uses_the_gpu(monkeypatch: pytest.MonkeyPatch, raw: bool) -> None:
    streams, used = cuda._Streams(), []
    monkeypatch.setattr(cuda, "streams", streams)
    torch = types.ModuleType("torch")
    torch._C = SimpleNamespace(**({"_cuda_getCurrentRawStream": lambda index: index + 70} if raw else {}))  # type: ignore[attr-defined]
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: bool(used), current_stream=lambda index: SimpleNamespace(cuda_stream=index + 70)
    )
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert streams.current(1) == 0
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert streams.current(1) == 0
    used.append(1)
    assert [streams.current(index) for index in (1, 2)] == [71, 72]


GRIDS: list[tuple[Any, tuple[int, ...]]] = [
    ((3,), (3, 1, 1)),
    ((3, 2), (3, 2, 1)),
    ((3, 2, 4), (3, 2, 4)),
    ((3,), (3, 1, 1)),
    (7, (7, 1, 1)),
    ([8, 2], (8, 2, 1)),
    ((np.int64(9), True), (9, 1, 1)),
    (lambda meta: (meta["n"], meta["BLOCK"]), (40, 32, 1)),
    (lambda meta: deuteron.cdiv(meta["n"], meta["BLOCK"]), (2, 1, 1)),
    ((2**30 - 1,), (2**30 - 1, 1, 1)),
    ((2**30,), (2**30, 1, 1)),
    ((2**31 - 1, 65535, 65535), (2**31 - 1, 65535, 65535)),
    ((1, 65535, 1), (1, 65535, 1)),
]


def test_grids_change_from_launch_to_launch(driver: FakeDriver, kernel: deuteron.JITFunction) -> None:
    for grid, sizes in GRIDS:
        kernel[grid](Tensor(), 40, 2.0)
        assert driver.launches[-1].grid == sizes
        assert read(driver) == (0x7F0000001000, 40, 2.0)


@pytest.mark.parametrize("grid", [(0,), (0, 1), (2, 0), (1, 1, 0), 0, [0]])
def test_a_zero_in_a_grid_launches_nothing(driver: FakeDriver, kernel: deuteron.JITFunction, grid: Any) -> None:
    first = kernel[(1,)](Tensor(), 40, 2.0)
    assert kernel[grid](Tensor(), 40, 2.0) is first
    assert len(driver.launches) == 1


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (None, "the grid None is not made of whole numbers"),
        ((1.0,), "not made of whole numbers"),
        ((1, 2.0), "not made of whole numbers"),
        ("1", "not made of whole numbers"),
        ((-1,), "size -1 along axis 0"),
        ((2**31,), "size 2147483648 along axis 0"),
        ((1, -1), "size -1 along axis 1"),
        ((1, 65536), "size 65536 along axis 1"),
        ((1, 1, 65536), "size 65536 along axis 2"),
        ((1, 1, 1, 2), "has 4 dimensions"),
        ((), "has 0 dimensions"),
    ],
)
def test_grids_are_checked_after_one_that_is_equal(
    driver: FakeDriver, kernel: deuteron.JITFunction, grid: Any, message: str
) -> None:
    x = Tensor()
    kernel[(1,)](x, 40, 2.0)
    with pytest.raises(LaunchError, match=message):
        kernel[grid](x, 40, 2.0)
    kernel[(1,)](x, 41, 2.0)
    assert (driver.launches[-1].grid, read(driver)[1]) == ((1, 1, 1), 41)


def test_threads_do_not_share_memory(
    driver: FakeDriver, kernel: deuteron.JITFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads are in the driver at once, and each still finds there what it passed."""
    kernel[(1,)](Tensor(), 40, 2.0)
    count, rounds = 4, 20
    together = threading.Barrier(count)
    launch, lock, found = driver.cuLaunchKernelEx, threading.Lock(), []

    def late(*arguments: Any) -> int:
        together.wait(timeout=60)
        with lock:
            launch(*arguments)
            found.append((*read(driver)[:2], driver.launches[-1].grid[0]))
        return 0

    monkeypatch.setattr(driver, "cuLaunchKernelEx", late)
    fresh = deuteron.JITFunction(scale)  # takes the driver's function when it is loaded

    def work(place: int) -> None:
        for i in range(rounds):
            fresh[(place + 1,)](Tensor(0x7F0000000000 + 0x1000 * place), 3 + 16 * i, 2.0)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [(0x7F0000000000 + 0x1000 * p, 3 + 16 * i, p + 1) for p in range(count) for i in range(rounds)]
    assert sorted(found) == sorted(expected)


def test_a_launch_that_raises_leaves_nothing_behind(driver: FakeDriver) -> None:
    @deuteron.jit
    def with_half(x, s: tl.float16, n: tl.int8 = 1):
        tl.store(x, s * n)

    driver.sizes = [8, 2, 1]
    with_half[(4,)](Tensor(), 2.0, 3)
    for _ in range(2):
        with pytest.raises(LaunchError, match="with_half: argument 'n': int 300 does not fit i8\nhint: .* -128 to 127"):
            with_half[(5,)](Tensor(0x7F0000002000), 2.0, 300)
    with_half[(4,)](Tensor(), 3.0, 4)
    assert [made.grid for made in driver.launches] == [(4, 1, 1)] * 2
    address, half, byte = driver.launches[-1].parameters
    assert struct.unpack("Qeb", address + half + byte) == (Tensor().address, 3.0, 4)


def test_floats_beyond_their_type_are_infinite(driver: FakeDriver, kernel: deuteron.JITFunction) -> None:
    """As after the cast in C that Triton's launches have."""
    for by, passed in ((1e40, np.inf), (-np.finfo(np.float64).max, -np.inf), (np.float64(1e300), np.inf), (2.0, 2.0)):
        kernel[(7,)](Tensor(), 40, by)
        assert read(driver) == (Tensor().address, 40, passed)
        made = driver.launches[-1]
        assert (made.grid, made.block, made.attributes) == ((7, 1, 1), driver.launches[0].block, {})


def test_what_the_driver_refuses_is_raised_and_later_launches_go_on(
    driver: FakeDriver, kernel: deuteron.JITFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [0, cuda.INVALID_CONTEXT, 0, 999, 0]  # the second is launched again, with the context made current
    launch = driver.cuLaunchKernelEx
    monkeypatch.setattr(driver, "cuLaunchKernelEx", lambda *a: codes.pop(0) or launch(*a))
    monkeypatch.setattr(cuda, "_describe", lambda code: f"error {code}")
    kernel[(1,)](Tensor(), 40, 2.0)
    driver.calls.clear()
    kernel[(2,)](Tensor(), 41, 2.0)
    assert driver.calls == ["cuCtxSetCurrent", "cuLaunchKernelEx"]
    with pytest.raises(DeviceError, match=r"launching scale on a grid of \(3, 1, 1\)"):
        kernel[(3,)](Tensor(), 41, 2.0)
    kernel[(4,)](Tensor(), 42, 2.0)
    assert [made.grid[0] for made in driver.launches] == [1, 2, 4]


def test_with_several_gpus_the_context_is_made_current(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.install(monkeypatch, gpus=2)
    monkeypatch.setitem(devices._known, "cuda:1", FakeGpu(1))
    kernel = deuteron.JITFunction(scale)
    for _ in range(2):
        driver.calls.clear()
        driver.contexts.clear()
        for device in (0, 1, 1, 0):
            kernel[(1,)](Tensor(device=device), 40, 2.0)
    assert driver.calls == ["cuCtxSetCurrent", "cuLaunchKernelEx"] * 4
    assert driver.contexts == [0, 1, 1, 0]
    launches = len(driver.launches)
    monkeypatch.setattr(cuda, "_describe", lambda code: f"error {code}")
    monkeypatch.setattr(driver, "cuCtxSetCurrent", lambda context: 999)
    with pytest.raises(DeviceError, match="launching scale"):
        deuteron.JITFunction(scale)[(1,)](Tensor(), 40, 2.0)
    assert len(driver.launches) == launches


def test_hooks_come_and_go_between_launches(
    driver: FakeDriver, kernel: deuteron.JITFunction, watch_launches: Callable[[], Any]
) -> None:
    seen: list[Any] = []

    def launch(n: int) -> None:
        kernel[(n,)](Tensor(), 40, 2.0)

    launch(1)
    with watch_launches() as events:
        launch(2)
    launch(3)
    kernel.add_pre_run_hook(lambda *args, **options: seen.append(args[1:]))
    launch(4)
    with watch_launches() as later:
        launch(5)
    assert [event.grid[0] for event in events + later] == [2, 5]
    assert seen == [(40, 2.0)] * 2
    assert [made.grid[0] for made in driver.launches] == [1, 2, 3, 4, 5]


# ---- what launches complete --------------------------------------------------------------------------------------


def test_clusters_and_halves(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    give_recipes(monkeypatch, lambda denied: LaunchRecipe(128, cluster=2))

    def with_half(x, s: tl.bfloat16):
        tl.store(x, s)

    driver.sizes = [8, 2]
    kernel = deuteron.JITFunction(with_half)
    for value, bits in ((1.0, 0x3F80), (3, 0x4040), (-2.0, 0xC000)):
        kernel[(4, 3)](Tensor(), value)
        made = driver.launches[-1]
        assert (made.cluster, made.grid) == ((2, 1, 1), (4, 3, 1))
        assert int.from_bytes(made.parameters[1], "little") == bits
    with pytest.raises(LaunchError, match="size 5 along axis 0, and the kernel runs in clusters of 2"):
        kernel[(5,)](Tensor(), 1.0)
    assert len(driver.launches) == 3
    again = kernel.bound((4,), Tensor(), 1.0)
    with pytest.raises(LaunchError, match="clusters of 2"):  # binding says so, and not the first launch
        kernel.bound((5,), Tensor(), 1.0)
    again()
    assert len(driver.launches) == 4


def test_numpys_numbers_are_on_no_device(driver: FakeDriver) -> None:
    """Nor are those in tuples; they come before the array that says where a kernel runs."""
    on_gpu, on_host = Tensor(), np.zeros(4, np.float32)
    for before in ({"n": np.int64(3)}, {"n": (np.int64(3), None)}, {"n": 3}, {}):
        assert devices.device_of({**before, "x": on_gpu}).name == "cuda:0"
        assert devices.device_of({**before, "x": (2, on_gpu), "y": on_host}).name == "cuda:0"
        assert devices.device_of({**before, "x": (on_host,), "y": on_gpu}).name == "cpu"
        assert devices.device_of(before).name == "cpu"


def number(x, n):
    tl.store(x, n)


@pytest.mark.parametrize("first", [8, 7])
def test_guards_are_looked_at_in_every_launch(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    guard = Guard("n", "multiple", 8)
    give_recipes(monkeypatch, lambda denied: LaunchRecipe(128) if guard in denied else LaunchRecipe(160, (guard,)))
    kernel = deuteron.JITFunction(number)
    driver.sizes = [8, 4]
    for n in (first, 8, 24, 7, 8, 9, 7, 40):
        kernel[(1,)](Tensor(), n)
        made = driver.launches[-1]
        assert (made.block[0], int.from_bytes(made.parameters[1], "little")) == (128 if n % 8 else 160, n)


@pytest.mark.parametrize("first", [(264,), (265,)])
def test_grids_are_looked_at_in_every_launch(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, first: tuple[int]
) -> None:
    """The GPU has 132 SMs."""
    guard = Guard(PROGRAMS, "least", 3)
    give_recipes(monkeypatch, lambda denied: LaunchRecipe(128) if guard in denied else LaunchRecipe(160, (guard,)))
    kernel = deuteron.JITFunction(number)
    driver.sizes = [8, 4]
    for grid in (first, (264,), (265,), (132, 2), (133, 2, 1), (5, 7, 8), (1,), (1000,), 264, 265):
        kernel[grid](Tensor(), 7)
        made = driver.launches[-1]
        assert made.block[0] == (128 if np.prod(grid) <= 264 else 160)
        assert np.prod(made.grid) == np.prod(grid)
    launched = len(driver.launches)
    kernel[(0,)](Tensor(), 7)
    assert len(driver.launches) == launched


#: Both, the second alone, or none are kept by 8, 4 and 7.
BY_EIGHT, BY_FOUR = Guard("n", "multiple", 8), Guard("n", "multiple", 4)


@pytest.mark.parametrize(
    ("values", "choosing"),
    [
        ((8, 24, 8), (True, False, False)),
        ((8, 7, 4, 8, 24), (True, True, True, False, False)),
        ((7, 4, 7, 9), (True, True, True, True)),
        ((4, 7, 8, 9, 24), (True, True, True, True, False)),
    ],
)
def test_only_the_first_launch_passes_through_the_launcher(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, values: tuple[int, ...], choosing: tuple[bool, ...]
) -> None:
    """Arguments that break guards leave a function too, which chooses a variant; those that keep all need not choose
    once theirs is known."""

    def recipe(denied: Any) -> LaunchRecipe:
        return LaunchRecipe(128 + 32 * len(denied), tuple(g for g in (BY_EIGHT, BY_FOUR) if g not in denied))

    give_recipes(monkeypatch, recipe)
    calls: list[str] = []
    run, choose = launcher.GuardedLauncher.__call__, launcher.GuardedLauncher.chosen
    monkeypatch.setattr(launcher.GuardedLauncher, "__call__", lambda *a: calls.append("run") or run(*a))
    monkeypatch.setattr(launcher.GuardedLauncher, "chosen", lambda *a: calls.append("choose") or choose(*a))
    kernel = deuteron.JITFunction(number)
    driver.sizes = [8, 4]
    for place, (n, chooses) in enumerate(zip(values, choosing, strict=True)):
        calls.clear()
        kernel[(1,)](Tensor(), n)
        made = driver.launches[-1]
        broken = [guard for guard in (BY_EIGHT, BY_FOUR) if n % guard.value]
        assert (made.block[0], int.from_bytes(made.parameters[1], "little")) == (128 + 32 * len(broken), n)
        assert ("run" in calls, "choose" in calls) == (place == 0, chooses)


def test_tuples_reach_the_driver_leaf_by_leaf(driver: FakeDriver) -> None:
    @deuteron.jit
    def local(out, pair, *rest):
        tl.store(out, tl.load(pair[0]) + pair[1][0] + rest[0])

    driver.sizes = [8, 8, 4, 4]
    for i in range(2, 6):
        out, x = Tensor(0x7F0000004000 + 64 * i), Tensor(0x7F0000008000 + 64 * i)
        local[(1,)](out, (x, (i, None)), i + 1)
        parameters = [int.from_bytes(p, "little") for p in driver.launches[-1].parameters]
        assert parameters == [out.address, x.address, i, i + 1]
