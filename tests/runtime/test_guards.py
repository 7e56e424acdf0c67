"""Guards: every way to launch a kernel leaves a variant whose guards the arguments break."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import IRError, LaunchError
from deuteron.compiler.launch_recipe import PROGRAMS, Guard, LaunchRecipe
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.runtime.launch import compiled, launcher
from deuteron.compiler.runtime.launch.compiled import CompiledKernel
from deuteron.compiler.runtime.launch.guards import Guards
from deuteron.compiler.runtime.variant import pipeline
from deuteron.compiler.runtime.variant.variant import Variant, make_variant
from deuteron.tools.tensor_descriptor import TensorDescriptor

EIGHT, FOUR, SIGN = Guard("stride", "multiple", 8), Guard("stride", "multiple", 4), Guard("n", "least", 0)


def add(x, out, n, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride, mask=i < n), mask=i < n)


TYPES = {"x": "*f32", "out": "*f32", "n": "i32", "stride": "i32"}
#: What the compiler would like to rely on: multiples of 8, without them of 4, and n not being negative in any case.
ALL = (EIGHT, SIGN)


def relied_on(denied: tuple[Guard, ...]) -> tuple[Guard, ...]:
    wanted = [FOUR if EIGHT in denied else EIGHT, SIGN]
    return tuple(g for g in wanted if g not in denied)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Variant]:
    """Variants that were compiled; CPU code has the guards that are not denied."""
    made: list[Variant] = []
    build_cpu = pipeline._build_cpu

    def with_guards(work: pipeline.Build, *rest: Any) -> None:
        build_cpu(work, *rest)
        work.recipe = LaunchRecipe(128, relied_on(work.variant.denied))
        made.append(work.variant)

    monkeypatch.setattr(pipeline, "_build_cpu", with_guards)
    return made


@pytest.fixture
def kernel() -> deuteron.JITFunction:
    return deuteron.JITFunction(add)


X = np.arange(256, dtype=np.float32)

#: Arguments n and stride, and what has to be denied for them.
CASES = [
    (5, 8, ()),
    (5, 4, (EIGHT,)),
    (5, 7, (FOUR, EIGHT)),
    (-1, 8, (SIGN,)),
    (-1, 2, (FOUR, EIGHT, SIGN)),
    (5, 16, ()),
]


def expected(n: int, stride: int) -> np.ndarray:
    out = np.zeros(8, np.float32)
    count = max(n, 0)
    out[:count] = X[: count * stride : stride]
    return out


def denied(found: Any) -> set[Guard]:
    assert isinstance(found, CompiledKernel) and found.variant is not None
    return set(found.variant.denied)


def launch(kernel: Any, out: np.ndarray, n: int, stride: int) -> Any:
    return kernel[(1,)](X, out, n, stride, BLOCK=8)


def bound(kernel: Any, out: np.ndarray, n: int, stride: int) -> Any:
    return kernel.bound((1,), X, out, n, stride, BLOCK=8)()


@pytest.mark.parametrize("way", [launch, bound])
def test_launches_run_a_variant_whose_guards_hold(
    built: list[Variant], kernel: Any, way: Callable[..., CompiledKernel]
) -> None:
    for _ in range(2):
        for n, stride, broken in CASES:
            out = np.zeros(8, np.float32)
            assert denied(way(kernel, out, n, stride)) == set(broken)
            np.testing.assert_array_equal(out, expected(n, stride))
    assert len({v.key for v in built}) == len(built)


def test_a_variant_that_no_launch_fits_is_not_loaded(
    built: list[Variant], kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Any] = []
    load = compiled.load
    monkeypatch.setattr(compiled, "load", lambda k, device: loaded.append(k.variant.denied) or load(k, device))
    launch(kernel, np.zeros(8, np.float32), 5, 2)
    assert [set(d) for d in loaded] == [{EIGHT, FOUR}]


def test_a_bound_launch_checks_guards_when_it_is_bound_again(built: list[Variant], kernel: Any) -> None:
    out = np.zeros(8, np.float32)
    again = kernel.bound((1,), X, out, 5, 8, BLOCK=8)
    assert denied(again()) == set()
    assert denied(again.rebind(stride=4)()) == {EIGHT}
    np.testing.assert_array_equal(out, expected(5, 4))
    assert denied(again.rebind(stride=16)()) == set()


def test_kernels_without_guards_pay_nothing(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "GuardedLauncher", None)
    launch(kernel, np.zeros(8, np.float32), 5, 7)


def test_compiled_kernels_switch_to_another_variant(built: list[Variant]) -> None:
    made = deuteron.compile(deuteron.JITFunction(add), TYPES, {"BLOCK": 8})
    for _ in range(2):
        for n, stride, _broken in CASES:
            out = np.zeros(8, np.float32)
            made.run((1,), X, out, n, stride)
            np.testing.assert_array_equal(out, expected(n, stride))
    # Once each; the last is on the way to what the arguments -1 and 2 need.
    needed = [set(broken) for _, _, broken in CASES[:-1]] + [{SIGN, EIGHT}]
    assert len(built) == len(needed) and all(set(v.denied) in needed for v in built)


def test_a_kernel_from_another_process_says_which_guard_is_broken(built: list[Variant]) -> None:
    made = pickle.loads(pickle.dumps(deuteron.compile(deuteron.JITFunction(add), TYPES, {"BLOCK": 8})))
    out = np.zeros(8, np.float32)
    made.run((1,), X, out, 5, 8)
    np.testing.assert_array_equal(out, expected(5, 8))
    with pytest.raises(LaunchError, match=r"add: the arguments break .* relies on: stride % 8 == 0, n >= 0"):
        made.run((1,), X, out, -1, 4)


MANY = Guard(PROGRAMS, "least", 3)


def count(out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id(0) + tl.program_id(1) * tl.num_programs(0), n)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> deuteron.JITFunction:
    """A kernel whose code would rather be launched on three programs per SM, and on a multiple of 4."""
    build_cpu = pipeline._build_cpu

    def with_guards(work: pipeline.Build, *rest: Any) -> None:
        build_cpu(work, *rest)
        work.recipe = LaunchRecipe(128, tuple(g for g in (MANY, FOUR_OF_N) if g not in work.variant.denied))

    monkeypatch.setattr(pipeline, "_build_cpu", with_guards)
    return deuteron.JITFunction(count)


FOUR_OF_N = Guard("n", "multiple", 4)


def test_small_grids_have_a_variant_of_their_own(counting: Any) -> None:
    cores = get_device("cpu").properties.sm_count or 1
    compiled_once = deuteron.compile(counting, {"out": "*i32", "n": "i32"}, {"BLOCK": 1})
    for grid, few in [((2 * cores,), True), ((2 * cores + 1,), False), ((cores, 2), True), ((cores, 3), False)]:
        for n, broken in [(4, set()), (6, {FOUR_OF_N})]:
            wanted = broken | ({MANY} if few else set())
            for way in (
                lambda out, grid=grid, n=n: counting[grid](out, n, BLOCK=1),
                lambda out, grid=grid, n=n: counting.bound(grid, out, n, BLOCK=1)(),
                lambda out, grid=grid, n=n: compiled_once.run(grid, out, n),
            ):
                out = np.zeros(np.prod(grid), np.int32)
                made = way(out)
                assert made is None or denied(made) == wanted
                np.testing.assert_array_equal(out, n)
    assert {frozenset(v) for v in compiled_once._others} == {
        frozenset(kind) for kind in ([MANY], [FOUR_OF_N], [MANY, FOUR_OF_N])
    }


def test_a_kernel_from_another_process_runs_on_any_grid(counting: Any) -> None:
    """What it is told of the grid makes it fast, not right."""
    made = pickle.loads(pickle.dumps(deuteron.compile(counting, {"out": "*i32", "n": "i32"}, {"BLOCK": 1})))
    out = np.zeros(1, np.int32)
    made.run((1,), out, 8)
    assert out[0] == 8
    with pytest.raises(LaunchError, match="relies on: n % 4 == 0"):
        made.run((1,), out, 6)


def test_warmups_know_no_grid(counting: Any) -> None:
    assert denied(counting.warmup(np.zeros(1, np.int32), 6, BLOCK=1)) == {FOUR_OF_N}


def test_recipes_are_kept_in_the_disk_cache(built: list[Variant]) -> None:
    first = deuteron.compile(deuteron.JITFunction(add), TYPES, {"BLOCK": 8})
    second = deuteron.compile(deuteron.JITFunction(add), TYPES, {"BLOCK": 8})
    assert second.metadata.cached and not first.metadata.cached
    assert second.metadata.recipe == first.metadata.recipe == LaunchRecipe(128, ALL)
    assert second.metadata.num_threads == 128
    second.run((1,), X, np.zeros(8, np.float32), 5, 3)
    assert [len(v.denied) for v in built] == [0, 1, 2]


def test_warmups_compile_what_launches_run(built: list[Variant], kernel: Any) -> None:
    out = np.zeros(8, np.float32)
    made = kernel.warmup(X, out, 5, 7, BLOCK=8)
    assert denied(made) == {EIGHT, FOUR}
    count = len(built)
    assert launch(kernel, out, 5, 7) is made
    assert len(built) == count
    # What a warm-up leaves open counts as fitting: "i32" says no more than the type.
    assert denied(kernel.warmup("*f32", "*f32", "i32", "i32", BLOCK=8)) == set()
    assert denied(kernel.warmup("*f32", "*f32", 5, 4, BLOCK=8)) == {EIGHT}


def test_autotuned_kernels(built: list[Variant], kernel: Any) -> None:
    configs = [deuteron.Config({"BLOCK": block}) for block in (8, 16)]
    tuned = deuteron.autotune(configs, ["n"], warmup=0, rep=1)(kernel)
    for way in (
        lambda out, *rest: tuned[(1,)](X, out, *rest),
        lambda out, *rest: tuned.bound((1,), X, out, *rest)(),
    ):
        out = np.zeros(16, np.float32)
        assert denied(way(out, 5, 7)) == {EIGHT, FOUR}
        np.testing.assert_array_equal(out[:8], expected(5, 7))
    # Compiled ahead, in the search: the variants that run, and those whose guards told so.
    assert len(built) == 2 * 3
    assert tuned.best_config in configs


def test_a_compiler_that_relies_on_what_is_denied_is_found_out(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build_cpu = pipeline._build_cpu

    def stubborn(work: pipeline.Build, *rest: Any) -> None:
        build_cpu(work, *rest)
        work.recipe = LaunchRecipe(128, (EIGHT,))

    monkeypatch.setattr(pipeline, "_build_cpu", stubborn)
    with pytest.raises(IRError, match="relies on stride % 8 == 0, which was denied"):
        launch(kernel, np.zeros(8, np.float32), 5, 7)


def test_what_is_denied_is_part_of_a_variants_identity() -> None:
    variant = make_variant(deuteron.JITFunction(add), TYPES, {"BLOCK": 8}, "cpu", {})
    one, other = variant.without([EIGHT]), variant.without([FOUR])
    assert len({variant.key, one.key, other.key}) == 3
    assert one.without([FOUR]).key == other.without([EIGHT]).key
    assert one.describe().endswith("for cpu without stride % 8 == 0")
    assert variant.describe().endswith("for cpu")


def doubled(one, x, out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK) * one, x.load([0]) * 2)


def test_guards_may_be_about_the_sizes_of_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    positive = Guard("x.size0", "least", 1)
    build_cpu = pipeline._build_cpu

    def with_guard(work: pipeline.Build, *rest: Any) -> None:
        build_cpu(work, *rest)
        work.recipe = LaunchRecipe(128, tuple({positive}.difference(work.variant.denied)))

    monkeypatch.setattr(pipeline, "_build_cpu", with_guard)
    kernel = deuteron.JITFunction(doubled)
    for size, broken in [(4, set()), (0, {positive}), (3, set())]:
        for way in ("launch", "bound", "run"):
            out, args = np.ones(4, np.float32), (1, TensorDescriptor(X, [size], [1], [4]))
            if way == "launch":
                found = kernel[(1,)](*args, out, BLOCK=4)
            elif way == "bound":
                found = kernel.bound((1,), *args, out, BLOCK=4)()
            else:
                found = kernel.warmup(*args, out, BLOCK=4)
                found.run((1,), args[1], out)
            assert denied(found) == broken
            np.testing.assert_array_equal(out, [2 * i if i < size else 0 for i in range(4)])


WAVES = Guard(PROGRAMS, "least", 4)


@pytest.mark.parametrize("sms", [4, 1, 0])
def test_guards_about_programs_beside_those_of_tuples(sms: int) -> None:
    """A tuple's leaves are spread; the number of programs, which follows all values, is one value."""
    leaf = Guard("pair.1", "multiple", 8)
    guards = Guards([leaf, WAVES], ["x", "pair.0", "pair.1"], lambda values: (values[0], *values[1]))
    device = replace(get_device("cpu").properties, sm_count=sms or None)

    def broken(multiple: int, programs: int) -> set[Guard]:
        seen = guards.seen((100, (7, multiple)), (programs * (sms or 1),), device)
        assert guards.holds(seen) == (not guards.broken(seen))
        return set(guards.broken(seen))

    assert broken(16, 4) == set()
    assert broken(12, 5) == {leaf}
    assert broken(8, 3) == {WAVES}
    assert broken(3, 1) == {leaf, WAVES}
