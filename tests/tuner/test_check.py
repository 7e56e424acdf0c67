"""The correctness gate on the CPU: every configuration is judged on fresh outputs, at the shape that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from checked_kernel import checker_of, goes_wrong, spoiling
from msgspec.structs import replace

from deuteron.compiler import knobs
from deuteron.compiler.launch_recipe import Guard, LaunchRecipe
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.runtime.variant import pipeline
from deuteron.tuner import Problem, resolve_workload
from deuteron.tuner.evaluate import check
from deuteron.tuner.evaluate.check import LEAST_OFTEN, Checker
from deuteron.tuner.evaluate.compilation import compile_variant
from deuteron.tuner.evaluate.cut import SMALL_DIM, cut_problem
from deuteron.tuner.space import Configuration


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_outputs_are_poisoned_before_each_check(problem: Problem, kind: Literal["cpu", "cuda"]) -> None:
    """What an earlier configuration left in the outputs must not make the next one right."""
    configs = [{"WRONG": wrong, "BLOCK": 64} for wrong in range(4)]
    checker = checker_of(problem, kind=kind)
    for _ in range(2):
        assert [checker.check(config).ok for config in configs] == [True, False, False, False]
    assert "1 of 1000 elements are wrong; the worst at [3]" in str(checker.check(configs[1]).message)
    assert "never written" in str(checker.check(configs[3]).message)


def test_who_writes_into_inputs_spoils_no_other_verdict(tmp_path: Path) -> None:
    problem, right, spoils = spoiling(tmp_path)
    checker = checker_of(problem)
    checker.launch(spoils)()
    assert checker.check(right).ok


def test_who_is_wrong_once_is_wrong(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """As programs that race are: a right result after a wrong one, on the same inputs, makes up for nothing."""
    checker, right = checker_of(problem), {"WRONG": 0, "BLOCK": 64}
    goes_wrong(monkeypatch, checker, range(0, 100, 2))
    assert [checker.check(right).ok for _ in range(4)] == [False, True] * 2


@pytest.mark.parametrize("launch", [0, LEAST_OFTEN - 1])
def test_before_it_is_stored_a_configuration_is_right_several_times(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, launch: int
) -> None:
    monkeypatch.setattr(check, "OFTEN_SECONDS", 0.0)
    checker, right = checker_of(problem), {"WRONG": 0, "BLOCK": 64}
    assert checker.check_often(right).ok
    goes_wrong(monkeypatch, checker, [launch])
    assert "1 of 1000 elements are wrong" in str(checker.check_often(right).message)


@pytest.mark.parametrize(("n", "fits"), [(1024, True), (1000, False)])
def test_what_is_measured_is_what_launches_at_these_sizes_run(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, n: int, fits: bool
) -> None:
    guard = Guard("n", "multiple", 64)
    build_cpu = pipeline._build_cpu

    def with_guard(work: pipeline.Build, *rest: object) -> None:
        build_cpu(work, *rest)  # type: ignore[arg-type]
        work.recipe = LaunchRecipe(128, () if guard in work.variant.denied else (guard,))

    monkeypatch.setattr(pipeline, "_build_cpu", with_guard)
    sized = Problem(problem.spec, {"n": n}, "f32")
    with knobs.cache_bytes.scope(0):
        kernel = compile_variant(sized, sized.variant({"WRONG": 0, "BLOCK": 64}), "cpu")
    assert kernel.variant is not None
    assert kernel.variant.denied == (() if fits else (guard,))
    assert kernel.metadata.recipe.guards == ((guard,) if fits else ())


def test_expressions_may_have_spaces_around_them(problem: Problem) -> None:
    spaced = Problem(replace(problem.spec, grid=(" cdiv(n, BLOCK) ",)), {"n": 1000}, "f32")
    assert cut_problem(spaced, {"n": SMALL_DIM}).dims == cut_problem(problem, {"n": SMALL_DIM}).dims


@pytest.mark.parametrize("size", [1, 16, 100, 112, 113, 1000, 1024, 4099, 1 << 20])
def test_a_small_problem_keeps_what_launches_know_about_divisibility(problem: Problem, size: int) -> None:
    small = cut_problem(Problem(problem.spec, {"n": size}, "f32"), {"n": SMALL_DIM}).dims["n"]
    assert small % 16 == size % 16
    assert small <= 112
    assert small == size or size > 112


PRODUCT = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(x_ptr + i * 32 + j, i < n, 0.0)
    tl.store(y_ptr + i * 32 + j, tl.dot(x, tl.trans(x)), i < n)


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n", 32]}, {"name": "y_ptr", "shape": ["n", 32], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, BLOCK)"],
    "space": {"parameters": {"BLOCK": [32]}},
}
"""


def test_products_of_f32_may_be_more_exact_than_tf32(tmp_path: Path) -> None:
    """The interpreter rounds to tf32, the CPU does not: a product of one's own in f32 is no wrong result."""
    (tmp_path / "product.py").write_text(PRODUCT)
    problem = Problem(resolve_workload(f"{tmp_path / 'product.py'}:kernel"), {"n": 200}, "f32")
    device, default = get_device("cpu"), {"BLOCK": 32}

    def compiled(config: Configuration) -> object:
        return compile_variant(problem, problem.variant(config), device.target), problem.variant(config)

    assert Checker(problem, device, 1, default, compiled).check(default).ok  # type: ignore[arg-type]
