"""Launching: binding arguments, grids, hooks, options, globals; errors that name what is wrong."""

from __future__ import annotations

import math
import types
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import CompilationError, DeuteronError, KernelMismatch, LaunchError, UnknownName
from deuteron.compiler.runtime.launch.hooks import (
    LaunchEvent,
    add_launch_hook,
    installed,
    remove_launch_hook,
)

SCALE = tl.constexpr(3)
OTHER = tl.constexpr(5)


@deuteron.jit
def times(x):
    return x * SCALE


@deuteron.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, times(tl.load(x + i, mask=i < n)), mask=i < n)


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(100, dtype=np.float32)


def test_values_and_grid_reach_the_kernel(recorder: Any, x: np.ndarray) -> None:
    y = np.zeros_like(x)
    kernel[(7,)](x, y, 100, BLOCK=64)
    variant, grid, values = recorder.launches[0]
    assert grid == (7, 1, 1)
    assert values == (x.ctypes.data, y.ctypes.data, 100)
    assert variant.constants == {"BLOCK": 64}
    kernel[(7,)](x, y, 100, 64)
    kernel[(7,)](n=100, y=y, x=x, BLOCK=64)
    assert len(recorder.compiled) == 1
    assert [v for _, _, v in recorder.launches] == [values] * 3


def test_grid_functions_see_all_arguments(recorder: Any, x: np.ndarray) -> None:
    def grid(meta: Any) -> tuple[int, ...]:
        assert meta["x"] is x
        return (deuteron.cdiv(meta["n"], meta["BLOCK"]), meta["num_warps"])

    kernel[grid](x, x, 100, BLOCK=64, num_warps=8)
    assert recorder.launches[0][1] == (2, 8, 1)
    assert recorder.last.schedule.num_warps == 8


def test_options_that_change_code_tell_variants_apart(recorder: Any, x: np.ndarray) -> None:
    fusion = [True, False, True]
    for fused in fusion:
        kernel[(1,)](x, x, 100, BLOCK=64, enable_fp_fusion=fused)
    assert [variant.schedule.enable_fp_fusion for variant, _, _ in recorder.launches] == fusion
    assert len(recorder.compiled) == 2


def test_options_that_change_no_code_share_a_variant(recorder: Any, x: np.ndarray) -> None:
    """On the CPU a program is one thread: the number of warps is accepted and means nothing."""
    for count in [4, 8, 4, 1]:
        kernel[(1,)](x, x, 100, BLOCK=64, num_warps=count)
    assert len(recorder.compiled) == 1


@pytest.mark.parametrize("grid", [(2**31 - 1,), (1, 65535), (1, 1, 65535)])
def test_the_largest_grids(recorder: Any, x: np.ndarray, grid: tuple[int, ...]) -> None:
    kernel[grid](x, x, 100, BLOCK=64)
    assert recorder.launches[0][1] == (*grid, 1, 1)[:3]
    beyond = (*grid[:-1], grid[-1] + 1)
    with pytest.raises(LaunchError, match=f"has size {beyond[-1]} along axis {len(grid) - 1}"):
        kernel[beyond](x, x, 100, BLOCK=64)


@pytest.mark.parametrize("changed", [3.0, "3", True])
def test_a_global_that_changes_its_type_is_refused(
    recorder: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch, changed: object
) -> None:
    """1, 1.0 and True are equal in Python, but not the same code."""
    monkeypatch.setitem(globals(), "SCALE", tl.constexpr(3 if changed is not True else 1))
    fresh = deuteron.jit(kernel.fn)
    fresh[(1,)](x, x, 100, BLOCK=64)
    monkeypatch.setitem(globals(), "SCALE", tl.constexpr(changed))
    with pytest.raises(LaunchError, match="Global variable SCALE"):
        fresh[(1,)](x, x, 100, BLOCK=64)


@pytest.mark.parametrize("grid", [(0,), (3, 0), (1, 2, 0)])
def test_empty_grid_launches_nothing(recorder: Any, x: np.ndarray, grid: tuple[int, ...]) -> None:
    kernel[grid](x, x, 100, BLOCK=64)
    assert recorder.launches == []


@pytest.mark.parametrize("grid", [3, (3,), [3], (np.int64(3),), (3, 1), (3, 1, 1), (3, 1, 1, 1)])
def test_spellings_of_a_grid(recorder: Any, x: np.ndarray, grid: Any) -> None:
    kernel[grid](x, x, 100, BLOCK=64)
    assert recorder.launches[0][1] == (3, 1, 1)


class Opaque:
    pass


@pytest.mark.parametrize("made_of", [3, dict, "def kernel(): pass"])
def test_a_kernel_is_made_of_a_function(made_of: Any) -> None:
    with pytest.raises(LaunchError, match="a kernel is made of a function, not of"):
        deuteron.jit(made_of)


ERRORS: list[tuple[Any, dict[str, Any], str, str]] = [
    ((1, 2, 3, 4), {}, "the grid .* has 4 dimensions", "use 1 to 3"),
    ((), {}, "the grid .* has 0 dimensions", "use 1 to 3"),
    ((-1,), {}, "size -1 along axis 0", "from 0 to 2147483647"),
    ((1, 70000), {}, "size 70000 along axis 1", "from 0 to 65535"),
    ((1.5,), {}, "not made of whole numbers", "cdiv"),
    ((1,), {"BLOKC": 3}, "kernel has no argument 'BLOKC'", "did you mean 'BLOCK'"),
    ((1,), {"num_warp": 3}, "kernel has no argument 'num_warp'", "did you mean 'num_warps'"),
    ((1,), {"num_warps": 3}, "num_warps = 3", "1, 2, 4, 8, 16 or 32"),
    ((1,), {"num_warps": "4"}, "num_warps = '4'", "takes an int"),
    ((1,), {"BLOCK": {}}, "argument 'BLOCK': a builtins.dict cannot be a compile-time", "numbers"),
    ((1,), {"x": [1.0]}, "argument 'x': a builtins.list is neither a number nor", "NumPy arrays"),
    ((1,), {"x": Opaque()}, "argument 'x': a .*Opaque is neither", "__dlpack__"),
    ((1,), {"x": np.zeros(3, complex)}, "'x': dtype complex128 has no counterpart", "f32"),
    ((1,), {"x": np.zeros(3, ">f4")}, "argument 'x': dtype >f4 has no counterpart", "f32"),
]


@pytest.mark.parametrize(("grid", "changes", "message", "hint"), ERRORS)
def test_errors_name_place_and_remedy(
    recorder: Any, x: np.ndarray, grid: Any, changes: dict[str, Any], message: str, hint: str
) -> None:
    arguments = {"x": x, "y": x, "n": 100, "BLOCK": 64, **changes}
    with pytest.raises(DeuteronError, match=message) as caught:
        kernel[grid](**arguments)
    assert hint in (caught.value.hint or "")
    assert recorder.launches == []


def test_missing_and_surplus_arguments(recorder: Any, x: np.ndarray) -> None:
    with pytest.raises(LaunchError, match="kernel: the argument 'n' is missing"):
        kernel[(1,)](x, x, BLOCK=64)
    with pytest.raises(LaunchError, match="kernel: the argument 'BLOCK' is missing"):
        kernel[(1,)](x, x, 5)
    with pytest.raises(LaunchError, match="kernel takes 4 arguments, got 1 more"):
        kernel[(1,)](x, x, 5, 64, 7)
    kernel[(1,)](x, x, 5, 64)
    with pytest.raises(LaunchError, match="got 1 more"):  # not hidden by the variant just made
        kernel[(1,)](x, x, 5, 64, 7)


def test_calling_without_a_grid(x: np.ndarray) -> None:
    with pytest.raises(CompilationError, match="work inside kernels only"):
        kernel(x, x, 5, 64)


def test_changed_global_is_refused(recorder: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel[(1,)](x, x, 5, 64)
    monkeypatch.setitem(globals(), "OTHER", tl.constexpr(6))  # the kernel does not use it
    kernel[(1,)](x, x, 5, 64)
    monkeypatch.setitem(globals(), "SCALE", tl.constexpr(3))  # another object of the same value
    kernel[(1,)](x, x, 5, 64)
    monkeypatch.setitem(globals(), "SCALE", tl.constexpr(4))
    with pytest.raises(KernelMismatch, match=r"kernel: Global variable SCALE has .* from constexpr\[3\] to .*\[4\]"):
        kernel[(1,)](x, x, 5, 64)


class Pair(NamedTuple):
    """A tuple with names, which kernels can read."""

    first: int
    second: int


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (0.0, -0.0, False),
        ((1, 0.0), (1, -0.0), False),
        ((1, 0.5), (1, 0.5), True),
        ((1, 2), (1, 2, 3), False),
        ((1, 2), (1, True), False),
        (float("nan"), float("nan"), True),
        (0.1 + 0.2, 0.3, False),
        (1.0, 1, False),
        (1, 1.0, False),
        (Pair(1, 2), Pair(1, 2), True),
        (Pair(1, 2), (1, 2), False),
        ((1, 2), Pair(1, 2), False),
    ],
)
def test_what_counts_as_another_global(
    recorder: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch, old: object, new: object, same: bool
) -> None:
    limit = tl.constexpr(old)

    @deuteron.jit
    def local(x):
        tl.static_assert(limit is not None)
        tl.store(x, 1)

    local[(1,)](x)
    limit = tl.constexpr(new)
    with nullcontext() if same else pytest.raises(KernelMismatch, match="Global variable limit has"):
        local[(1,)](x)


def test_changed_variables_of_enclosing_functions_and_modules_are_refused(
    recorder: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    width = tl.constexpr(3)

    @deuteron.jit
    def local(x):
        tl.store(x, width + sizes.HEIGHT)

    sizes = types.ModuleType("sizes")
    sizes.HEIGHT = tl.constexpr(5)  # type: ignore[attr-defined]
    local[(1,)](x)
    assert [name for name, _ in local.used_global_vals] == ["sizes.HEIGHT", "width"]
    width.value = 5  # in place: the object is the same one
    with pytest.raises(KernelMismatch, match=r"width has .* from constexpr\[3\] to constexpr\[5\]"):
        local[(1,)](x)
    width.value = 3
    local[(1,)](x)
    width = tl.constexpr(3)
    local[(1,)](x)
    width = tl.constexpr(4)
    with pytest.raises(KernelMismatch, match="local: Global variable width has"):
        local[(1,)](x)
    width = tl.constexpr(3)
    monkeypatch.setattr(sizes, "HEIGHT", tl.constexpr(6))
    with pytest.raises(LaunchError, match="Global variable sizes.HEIGHT has"):
        local[(1,)](x)


def test_plain_values_of_modules_are_constants(recorder: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    @deuteron.jit
    def local(x):
        if tl.constexpr(sizes.vendor.version is not None):
            tl.store(x, sizes.vendor.version)
        else:
            tl.store(x, sizes.HEIGHT + math.pi + sizes.PAIR[1])

    sizes, vendor = types.ModuleType("sizes"), types.ModuleType("vendor")
    vars(sizes).update(HEIGHT=5, PAIR=(1, 2), vendor=vendor, LIST=[3])
    vars(vendor).update(version=None)
    local[(1,)](x)
    first = recorder.last.key
    assert "sizes.vendor.version" in [name for name, _ in local.used_global_vals]
    monkeypatch.setattr(vendor, "version", 7)
    with pytest.raises(KernelMismatch, match=r"sizes.vendor.version has .* from None to 7"):
        local[(1,)](x)

    @deuteron.jit
    def later(x):
        if tl.constexpr(sizes.vendor.version is not None):
            tl.store(x, sizes.vendor.version)
        else:
            tl.store(x, sizes.HEIGHT + math.pi + sizes.PAIR[1])

    later[(1,)](x)
    assert recorder.last.key != first

    @deuteron.jit
    def changeable(x):
        tl.store(x, sizes.LIST[0])

    with pytest.raises(UnknownName, match=r"Cannot access global variable 'sizes.LIST'"):
        deuteron.compile(changeable, signature={"x": "*f32"}, target="cpu", stop_after="tile")


def test_scoped_knobs_reach_the_schedule(recorder: Any, x: np.ndarray) -> None:
    kernel[(1,)](x, x, 5, 64)
    assert recorder.last.schedule.debug is False
    with knobs.debug.scope(True), knobs.default_fp_fusion.scope(False):
        kernel[(1,)](x, x, 5, 64)
        assert recorder.last.schedule.debug is True
        assert recorder.last.schedule.enable_fp_fusion is False
    kernel[(1,)](x, x, 5, 64)
    assert recorder.last.schedule.debug is False
    assert len(recorder.compiled) == 2


def test_pre_run_hooks_and_kept_variants(recorder: Any, x: np.ndarray) -> None:
    seen: list[Any] = []

    @deuteron.jit
    def local(x, n):
        tl.store(x, n)

    local.add_pre_run_hook(lambda *args, **options: seen.append((args, options)))
    local[(1,)](x, 5, num_warps=2)
    local[(1,)](x, n=5, num_warps=2)
    local.run(x, 5, grid=(1,))
    local.warmup(x, n=5, grid=(1,))
    assert seen == [
        ((x, 5), {"num_warps": 2}),
        ((x,), {"n": 5, "num_warps": 2}),
        ((x, 5), {}),
        ((x,), {"n": 5}),
    ]
    assert [k.metadata.num_warps for k in local.cache.values()] == [2]
    local.pre_run_hooks.clear()
    local[(1,)](x, 5)
    assert len(seen) == 4


class Hook:
    def __init__(self, log: list[Any], name: str) -> None:
        self.log, self.name = log, name

    def enter(self, event: LaunchEvent) -> None:
        self.log.append((self.name, "enter", event.name, event.grid, event.metadata()))

    def exit(self, event: LaunchEvent) -> None:
        self.log.append((self.name, "exit", event.start_ns, event.end_ns))


def test_launch_hooks(recorder: Any, x: np.ndarray) -> None:
    def metadata(grid: Any, kernel: Any, args: Any) -> dict[str, Any]:
        return {"name": f"{kernel.name}_{args['n']}", "bytes": grid[0] * args["BLOCK"]}

    @deuteron.jit(launch_metadata=metadata, repr=lambda launch: f"k_{launch.constants['BLOCK']}")
    def observed(x, n, BLOCK: tl.constexpr):
        tl.store(x, n)

    log: list[Any] = []
    first, second = Hook(log, "a"), Hook(log, "b")
    add_launch_hook(first)
    add_launch_hook(second)
    add_launch_hook(second)
    try:
        observed[(2,)](x, 5, BLOCK=8)
    finally:
        remove_launch_hook(first)
        remove_launch_hook(second)
    entered = ("k_8", (2, 1, 1), {"name": "k_8_5", "bytes": 16})
    assert log == [
        ("a", "enter", *entered),
        ("b", "enter", *entered),
        ("b", "exit", 1, 2),
        ("a", "exit", 1, 2),
    ]
    assert installed.hooks == ()
    observed[(2,)](x, 5, BLOCK=8)
    assert len(log) == 4


def test_hooks_see_the_kernel_and_its_arguments(watch_launches: Any, x: np.ndarray) -> None:
    with watch_launches() as events:
        compiled = kernel[(2,)](x, x, 100, 64)
        compiled[(2,)](x, x, 100)
    assert [event.kernel for event in events] == [compiled, compiled]
    for event in events:
        arguments = event.arguments()
        assert list(arguments) == list(compiled.signature) == ["x", "y", "n"]
        assert arguments["x"] is x and arguments["n"] == 100


def test_names_are_made_of_types_as_triton_spells_them(watch_launches: Any, x: np.ndarray) -> None:
    def name(specialization: Any) -> str:
        types = "_".join(specialization.signature[name][-4:] for name in ("x", "y", "n", "BLOCK"))
        return f"k_{types}_{specialization.constants['BLOCK']}"

    @deuteron.jit(repr=name)
    def named(x, y, n, BLOCK: tl.constexpr):
        tl.store(x, n)

    with watch_launches() as events:
        assert named[(1,)](x, x.astype(np.float16), 5, BLOCK=8).name == "k_fp32_fp16_i32_expr_8"
    assert [event.name for event in events] == ["k_fp32_fp16_i32_expr_8"]


def test_hooks_leave_when_the_launch_fails(recorder: Any, x: np.ndarray) -> None:
    class Failing(Hook):
        def enter(self, event: LaunchEvent) -> None:
            raise RuntimeError("a hook failed")

    log: list[Any] = []
    good, bad = Hook(log, "good"), Failing(log, "bad")
    add_launch_hook(good)
    add_launch_hook(bad)
    try:
        with pytest.raises(RuntimeError, match="a hook failed"):
            kernel[(1,)](x, x, 5, 64)
    finally:
        remove_launch_hook(good)
        remove_launch_hook(bad)
    assert [entry[:2] for entry in log] == [("good", "enter"), ("good", "exit")]
    assert recorder.launches == []


def test_kernels_are_not_iterated() -> None:
    """Python would take ``kernel[0]``, ``kernel[1]`` and so on for elements, without end."""
    tuned = deuteron.autotune([deuteron.Config({})], [])(kernel)
    compiled = deuteron.compile(kernel, {"x": "*f32", "y": "*f32", "n": "i32"}, {"BLOCK": 16})
    for held in (kernel, tuned, compiled):
        with pytest.raises(TypeError, match="not iterable"):
            list(held)  # type: ignore[call-overload]


def test_warps_of_one_thread():
    """Programs written for Triton's CPU back end, whose warps have one thread, ask for many."""
    out = np.zeros(1, np.int32)

    @deuteron.jit
    def kernel(out):
        tl.store(out, 3)

    kernel[(1,)](out, num_warps=128)
    assert out[0] == 3
    with pytest.raises(DeuteronError, match="num_warps = 96"):
        kernel[(1,)](out, num_warps=96)
