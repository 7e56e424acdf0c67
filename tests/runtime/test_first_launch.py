"""Launches and warm-ups compile what runs, and nothing that they leave: on a driver that runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from fake_driver import FakeDriver, give_recipes
from fake_torch import Tensor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.launch_recipe import PROGRAMS, Guard, LaunchRecipe
from deuteron.compiler.runtime.launch import hooks
from deuteron.compiler.runtime.launch.hooks import VariantRequest
from deuteron.compiler.runtime.launch.pending import AsyncCompileMode
from deuteron.compiler.runtime.variant import obtain
from deuteron.compiler.runtime.variant.pipeline import Build, build
from deuteron.compiler.runtime.variant.specialization import specialization_text
from deuteron.compiler.runtime.variant.variant import Variant

SIXTEEN, FOUR = Guard("n", "multiple", 16), Guard("n", "multiple", 4)
SIGN, LOW = Guard("m", "least", 1), Guard("m", "least", -8)
MANY = Guard(PROGRAMS, "least", 3)


def relied_on(denied: frozenset[Guard]) -> tuple[Guard, ...]:
    """Multiples of 16, without them of 4; sizes of 1 and more, without them of -8 and more; large grids."""
    wanted = (FOUR if SIXTEEN in denied else SIXTEEN, LOW if SIGN in denied else SIGN, MANY)
    return tuple(guard for guard in wanted if guard not in denied)


def left_out(n: int, m: int, programs: int) -> frozenset[Guard]:
    """What the variant of such a launch does without."""
    values = {"n": n, "m": m, PROGRAMS: programs}
    denied: frozenset[Guard] = frozenset()
    while broken := LaunchRecipe(32, relied_on(denied)).broken_by(values):
        denied |= {*broken}
    return denied


def number(out, n, m, BLOCK: tl.constexpr):
    tl.store(out, n + m + BLOCK)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Build]:
    """What was built, whole or not; every time anew."""
    give_recipes(monkeypatch, lambda denied: LaunchRecipe(128 + 32 * len(denied), relied_on(denied)))
    made: list[Build] = []

    def noted(variant: Variant, *rest: Any, **more: Any) -> Build:
        made.append(build(variant, *rest, **more))
        return made[-1]

    monkeypatch.setattr(obtain, "build", noted)
    return made


@pytest.fixture
def kernel(driver: FakeDriver) -> deuteron.JITFunction:
    driver.sizes = [8, 4, 4]
    return deuteron.JITFunction(number)


def denied(kernel: Any) -> frozenset[Guard]:
    return frozenset(kernel.variant.denied)


def compiled(built: list[Build]) -> list[frozenset[Guard]]:
    """What those do without that were made to the end."""
    return [frozenset(each.variant.denied) for each in built if "ptx" in each.artifacts]


LAUNCHES = st.tuples(st.sampled_from([32, 48, 20, 36, 7, 9]), st.sampled_from([5, -3, -20]), st.sampled_from([2, 900]))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(LAUNCHES, st.sampled_from(["launch", "bind", "warm"])), min_size=1, max_size=6))
def test_only_what_runs_is_compiled_and_once(
    driver: FakeDriver, built: list[Build], wanted: list[tuple[tuple[int, int, int], str]]
) -> None:
    driver.sizes = [8, 4, 4]
    built.clear()
    kernel = deuteron.JITFunction(number)
    ran = []
    with knobs.always_compile.scope(True):
        for (n, m, programs), way in wanted:
            grid, expected = (programs,), left_out(n, m, -(-programs // 132))
            if way == "warm":
                expected -= {MANY}  # of a large grid
                found = kernel.warmup(Tensor(), n, m, BLOCK=1, grid=grid)
            else:
                again = kernel.bound(grid, Tensor(), n, m, BLOCK=1) if way == "bind" else None
                found = again() if again else kernel[grid](Tensor(), n, m, BLOCK=1)
                assert driver.launches[-1].block[0] == 128 + 32 * len(expected)
            assert denied(found) == expected
            ran.append((expected, str(found.variant.signature["n"])))
    keys = [each.variant.key for each in built if "ptx" in each.artifacts]
    assert len(keys) == len(set(keys)) == len(set(ran))


def test_a_grid_that_is_a_function_is_asked_once(built: list[Build], kernel: Any) -> None:
    asked = []
    kernel[lambda meta: asked.append(meta["BLOCK"]) or (2,)](Tensor(), 7, 5, BLOCK=1)
    assert asked == [1]
    assert compiled(built) == [left_out(7, 5, 1)]


def test_what_was_left_is_compiled_where_it_fits(built: list[Build], kernel: Any) -> None:
    many = (900,)
    with knobs.always_compile.scope(True):
        kernel[many](Tensor(), 20, 5, BLOCK=1)
        assert compiled(built) == [{SIXTEEN}]
        assert len(built) == 2
        kernel[many](Tensor(), 36, 5, BLOCK=1)
        assert len(built) == 2
        kernel[many](Tensor(), 7, 5, BLOCK=1)
        assert compiled(built) == [{SIXTEEN}, {SIXTEEN, FOUR}]
        assert len(built) == 3


def test_later_launches_count_with_their_own_values(built: list[Build], kernel: Any) -> None:
    neither = {SIGN, LOW}
    kernel[(900,)](Tensor(), 32, 5, BLOCK=1)
    kernel[(900,)](Tensor(), 32, -20, BLOCK=1)
    assert compiled(built) == [frozenset(), neither]
    built.clear()
    kernel.warmup(Tensor(), 32, 5, BLOCK=2)
    kernel.warmup(Tensor(), 32, -20, BLOCK=2)
    assert compiled(built) == [frozenset(), neither]


def test_small_grids_count_where_only_later_variants_rely_on_large_ones(
    built: list[Build], kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_recipes(
        monkeypatch, lambda denied: LaunchRecipe(128, tuple({MANY} - denied) if SIXTEEN in denied else (SIXTEEN,))
    )
    kernel[(2,)](Tensor(), 32, 5, BLOCK=1)
    kernel[(2,)](Tensor(), 20, 5, BLOCK=1)
    assert compiled(built) == [frozenset(), {SIXTEEN, MANY}]


def test_listeners_are_told_what_is_wanted_and_what_came_of_it(
    built: list[Build], kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[frozenset[Guard], bool]] = []

    def listen(event: object) -> None:
        if isinstance(event, VariantRequest):
            told.append((frozenset(event.variant.denied), event.metadata is not None))

    monkeypatch.setattr(hooks.installed, "listeners", (listen,))
    for _ in range(2):
        kernel[(900,)](Tensor(), 20, 5, BLOCK=1)
        kernel.warmup(Tensor(), 20, 5, BLOCK=1)
    assert told == [(frozenset(), False), (frozenset({SIXTEEN}), False), (frozenset({SIXTEEN}), True)]


@pytest.mark.parametrize("threads", [1, 3])
def test_pools_compile_what_runs(built: list[Build], kernel: Any, threads: int) -> None:
    with knobs.always_compile.scope(True), ThreadPoolExecutor(threads) as pool:
        with AsyncCompileMode(pool):
            pending = [kernel.warmup(Tensor(), n, 5, BLOCK=block) for block in (1, 2) for n in (20, 20, 7)]
        found = [each.result() if hasattr(each, "result") else each for each in pending]
        assert compiled(built)
        for each, n in zip(found[::3], (20, 20), strict=True):
            assert denied(each) == left_out(n, 5, 900)
        with AsyncCompileMode(pool):
            assert kernel.warmup(Tensor(), 20, 5, BLOCK=1) is found[0]  # at hand
        count = len(built)
        assert kernel[(900,)](Tensor(), 20, 5, BLOCK=1) is found[0]
        assert len(built) == count
        assert denied(kernel[(900,)](Tensor(), 32, 5, BLOCK=1)) == frozenset()


def test_what_goes_on_to_a_variant_that_fits_is_found_meanwhile(
    built: list[Build], kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for the same between the two compilations does not begin a third."""
    begun, go = Event(), Event()
    built_at_once = obtain.build

    def slowly(variant: Variant, *rest: Any, **more: Any) -> Build:
        if variant.denied:
            begun.set()
            assert go.wait(30)
        return built_at_once(variant, *rest, **more)

    monkeypatch.setattr(obtain, "build", slowly)
    with knobs.always_compile.scope(True), ThreadPoolExecutor(2) as pool:
        with AsyncCompileMode(pool):
            first = kernel.warmup(Tensor(), 20, 5, BLOCK=1)
            assert begun.wait(30)
            assert kernel.warmup(Tensor(), 20, 5, BLOCK=1) is first
            go.set()
        count = len(built)
        assert kernel.warmup(Tensor(), 20, 5, BLOCK=1) is first.result()
        assert denied(first.result()) == left_out(20, 5, 900)
        assert len(built) == count == 2


def test_what_is_at_hand_and_does_not_fit_is_not_given(built: list[Build], kernel: Any) -> None:
    with knobs.always_compile.scope(True), ThreadPoolExecutor(2) as pool:
        assert denied(kernel.warmup(Tensor(), 32, 5, BLOCK=1)) == frozenset()
        with AsyncCompileMode(pool):
            other = kernel.warmup(Tensor(), 32, -3, BLOCK=1)
        assert denied(other.result()) == left_out(32, -3, 900) == {SIGN}
        assert kernel.warmup(Tensor(), 32, -3, BLOCK=1) is other.result()


def test_another_process_has_what_ran_here_before_its_first_launch(built: list[Build], kernel: Any) -> None:
    kernel[(900,)](Tensor(), 7, 5, BLOCK=1)
    other = deuteron.JITFunction(number)
    for made in kernel.cache.values():
        assert denied(other.preload(specialization_text(made.variant))) == denied(made)
    count = len(compiled(built))
    assert denied(other[(900,)](Tensor(), 7, 5, BLOCK=1)) == left_out(7, 5, 900)
    assert len(compiled(built)) == count


def test_a_search_compiles_each_candidate_for_its_own_grid(built: list[Build], driver: FakeDriver) -> None:
    driver.sizes = [8, 4, 4]

    def bench(call: Callable[[], object], quantiles: object) -> list[float]:
        call()
        return [1.0] * 3

    configs = [deuteron.Config({"BLOCK": block}) for block in (1, 450)]
    tuner = deuteron.autotune(configs, [], do_bench=bench)(deuteron.JITFunction(number))
    with knobs.always_compile.scope(True):
        tuner[lambda meta: (deuteron.cdiv(900, meta["BLOCK"]),)](Tensor(), 32, 5)
    made = [each.variant for each in built if "ptx" in each.artifacts]
    assert {variant.constants["BLOCK"]: variant.denied for variant in made} == {1: (), 450: (MANY,)}
    assert len(made) == 2
