"""The variant that a launch with known arguments runs is found without assembling those that it does not run."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.compiler import knobs
from deuteron.compiler.launch_recipe import PROGRAMS
from deuteron.compiler.runtime.launch.compiled import CompiledKernel, compile_fitting, compile_variant
from deuteron.compiler.runtime.variant import obtain
from deuteron.compiler.runtime.variant.pipeline import Build, build
from deuteron.compiler.runtime.variant.variant import Variant, make_variant
from deuteron.compiler.targets.assembler import has_ptxas
from deuteron.tuner.workloads import Problem, builtin_workload
from deuteron.tuner.workloads.effect import gpu_code

SHAPE = {"M": 4096, "N": 4096, "K": 4096}
BLOCKS = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}


def product(**changes: object) -> Variant:
    """The variant of the built-in product for sizes that are multiples of 16."""
    problem = Problem(builtin_workload("matmul"), SHAPE, "bf16")
    space = problem.spec.space_for("cuda")
    config = {p.name: BLOCKS.get(p.name, p.default) for p in space.parameters}
    plan = problem.variant({**config, **changes})
    return make_variant(problem.source, plan.signature, plan.constexprs, "cuda:90a", plan.schedule)


def known(rows: int, columns: int, inner: int, programs: int = 40) -> dict[str, object]:
    sizes = {"M": rows, "N": columns, "K": inner}
    strides = {"stride_am": inner, "stride_bk": columns, "stride_cm": columns}
    return {**sizes, **strides, PROGRAMS: programs}


def sizes(rows: int) -> dict[str, int]:
    """The scalar arguments of a launch."""
    return {name: value for name, value in known(rows, 4096, 4096).items() if isinstance(value, int)}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Build]:
    """What was built, whole or not."""
    made: list[Build] = []

    def noted(variant: Variant, *rest: object, **more: object) -> Build:
        made.append(build(variant, *rest, **more))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(obtain, "build", noted)
    return made


def text(kernel: CompiledKernel) -> str:
    return str(kernel.asm["ptx"])


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([1, 2, 16, 48, 64, 96, 4096]),
    st.sampled_from([16, 64, 4096]),
    st.sampled_from([16, 4096]),
    st.sampled_from([1, 2, 40]),
)
def test_it_is_the_one_that_a_launch_runs(rows: int, columns: int, inner: int, programs: int) -> None:
    variant, arguments = product(), known(rows, columns, inner, programs)
    found = compile_fitting(variant, arguments)
    expected = compile_variant(variant).fitting(arguments)
    assert found.hash == expected.hash
    assert text(found) == text(expected)
    assert not found.metadata.recipe.broken_by(arguments)


def test_what_does_not_fit_ends_after_the_gpu_stage(built: list[Build]) -> None:
    fitting = compile_fitting(product(), known(2, 4096, 4096))
    first, last = built[0], built[-1]
    assert first.broken
    assert not first.artifacts
    assert not last.broken
    assert fitting.hash == last.variant.key != first.variant.key


def test_guards_are_remembered(built: list[Build]) -> None:
    compile_fitting(product(BLOCK_M=128), known(2, 4096, 4096))
    assert [bool(each.broken) for each in built] == [True, False]
    built.clear()
    again = compile_fitting(product(BLOCK_M=128), known(2, 4096, 4096))
    assert [bool(each.broken) for each in built] == ([] if has_ptxas() else [False])
    assert again.metadata.cached == has_ptxas()


def test_what_was_only_looked_at_is_made_where_it_fits(built: list[Build]) -> None:
    """Guards alone are no code."""
    small, large = known(2, 4096, 4096), known(4096, 4096, 4096)
    compile_fitting(product(BLOCK_N=128), small)
    found = compile_fitting(product(BLOCK_N=128), large)
    assert found.hash == product(BLOCK_N=128).key
    assert text(found) == text(compile_variant(product(BLOCK_N=128)))


@pytest.mark.parametrize("without", [knobs.always_compile.scope(True), knobs.cache_bytes.scope(0)])
def test_it_does_without_a_cache(without: AbstractContextManager[None], built: list[Build]) -> None:
    with without:
        for _ in range(2):
            compile_fitting(product(BLOCK_K=64), known(2, 4096, 4096))
    assert [bool(each.broken) for each in built] == [True, False] * 2


@pytest.mark.parametrize(("rows", "same"), [(4096, True), (2, False)])
def test_code_is_compared_of_what_runs(rows: int, same: bool) -> None:
    """That an option does nothing is known of the variant that arguments fit."""
    code, large = (gpu_code(product(), sizes(m)) for m in (rows, 4096))
    assert (code == large) is same
