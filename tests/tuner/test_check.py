"""The correctness gate on the CPU: every configuration is judged on fresh outputs, at the shape that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from deuteron.compiler import knobs
from deuteron.compiler.launch_recipe import Guard, LaunchRecipe
from deuteron.compiler.runtime.cpu.device import CpuDevice
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.runtime.variant import pipeline
from deuteron.tuner import Problem, resolve_workload
from deuteron.tuner.errors import WorkloadError
from deuteron.tuner.evaluate.check import SMALL_DIM, Checker, cut_problem
from deuteron.tuner.evaluate.compilation import compile_variant
from deuteron.tuner.space import Configuration

TEXT = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = o < n
    if WRONG == 1:
        mask = mask & (o != 3)
    y = tl.load(x_ptr + o, mask=mask) * 2
    if WRONG == 2:
        y += 0.001
    if WRONG != 3:
        tl.store(y_ptr + o, y, mask=mask)


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, BLOCK)"],
    "space": {"parameters": {"WRONG": [0, 1, 2, 3], "BLOCK": [64]}},
}
"""


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    path = tmp_path / "mine.py"
    path.write_text(TEXT)
    return Problem(resolve_workload(f"{path}:kernel"), {"n": 1000}, "f32")


def checker_of(problem: Problem, seed: int = 1, kind: Literal["cpu", "cuda"] = "cpu") -> Checker:
    """A checker whose default is the right configuration, on the CPU; which may be said to be a GPU."""
    device = get_device("cpu")
    if kind == "cuda":
        device = CpuDevice()
        device.properties = DeviceProperties("fake", "cuda", memory_bytes=1 << 34)

    def compiled(config: Configuration) -> object:
        variant = problem.variant(config)
        return compile_variant(problem, variant, device.target), variant

    return Checker(problem, device, seed, {"WRONG": 0, "BLOCK": 64}, compiled)  # type: ignore[arg-type]


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
    text = TEXT.replace(
        "    if WRONG != 3:\n",
        "    if WRONG == 4:\n        tl.store(x_ptr + o, y + 1, mask=mask)\n    if WRONG != 3:\n",
    )
    (tmp_path / "spoiling.py").write_text(text)
    problem = Problem(resolve_workload(f"{tmp_path / 'spoiling.py'}:kernel"), {"n": 1000}, "f32")
    right, spoils = ({"WRONG": wrong, "BLOCK": 64} for wrong in (0, 4))
    checker = checker_of(problem)
    checker.launch(spoils)()
    assert checker.check(right).ok


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("tl.store(y_ptr + o, y, mask=o < n + 1)", "wrote 4 bytes behind 'y_ptr'"),
        ("tl.store(y_ptr - 1, 7.0)", "wrote 4 bytes before 'y_ptr'"),
        ("tl.store(x_ptr + n + 1 + o % 2, y, mask=mask)", "wrote 8 bytes behind 'x_ptr'"),
        ("tl.store(x_ptr - 2 + 0 * o, y); tl.store(y_ptr + n, 1.0)", "'x_ptr'; wrote 4 bytes behind 'y_ptr'"),
        ("tl.store(y_ptr - 1024 + tl.arange(0, 1024), 0.0)", "wrote 4096 bytes or more before 'y_ptr'"),
    ],
)
def test_who_writes_outside_the_tensors_is_wrong(
    tmp_path: Path, kind: Literal["cpu", "cuda"], store: str, said: str
) -> None:
    """The result is right, and the memory around it belongs to others. It spoils no other verdict."""
    text = TEXT.replace("    if WRONG != 3:\n", f"    if WRONG == 4:\n        {store}\n    if WRONG != 3:\n")
    (tmp_path / "outside.py").write_text(text)
    problem = Problem(resolve_workload(f"{tmp_path / 'outside.py'}:kernel"), {"n": 1000}, "f32")
    right, outside = ({"WRONG": wrong, "BLOCK": 64} for wrong in (0, 4))
    checker = checker_of(problem, kind=kind)
    for _ in range(2):
        assert said in str(checker.check(outside).message)
        assert checker.check(right).ok
    checker.launch(outside)()  # as one that writes outside now and then only
    assert checker.check(right).ok


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


def test_an_output_that_is_added_to_is_refused(tmp_path: Path) -> None:
    """Poison and a sum are poison for every configuration, right or wrong."""
    text = TEXT.replace("tl.store(y_ptr + o, y, mask=mask)", "tl.atomic_add(y_ptr + o, y, mask=mask)")
    (tmp_path / "adding.py").write_text(text)
    problem = Problem(resolve_workload(f"{tmp_path / 'adding.py'}:kernel"), {"n": 1000}, "f32")
    with pytest.raises(WorkloadError, match="every element of the output 'y_ptr' unwritten or NaN"):
        checker_of(problem, seed=0)


ROWS = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * N + i
    tl.store(y_ptr + at, tl.{function}(tl.load(x_ptr + at, i < N)), i < N)


workload = {{
    "dims": ["M", "N"],
    "tensors": [{{"name": "x_ptr", "shape": ["M", "N"]}}, {{"name": "y_ptr", "shape": ["M", "N"], "role": "{role}"}}],
    "scalars": {{"M": "M", "N": "N"}},
    "grid": ["{grid}"],
    "space": {{"parameters": {{"BLOCK": [64]}}}},
}}
"""


@pytest.mark.parametrize(
    ("function", "role", "grid", "refused"),
    [
        ("exp", "output", "cdiv(M, BLOCK)", True),
        ("exp", "inout", "cdiv(M, BLOCK)", False),  # what is not written is meant to stay
        ("exp", "output", "M", False),
        ("log", "output", "M - M // 8", False),  # NaN at half of the elements, unwritten an eighth
    ],
)
def test_an_output_that_is_hardly_written_is_refused(
    tmp_path: Path, function: str, role: str, grid: str, refused: bool
) -> None:
    """A grid with too few programs would make its own result the expected one."""
    (tmp_path / "rows.py").write_text(ROWS.format(function=function, role=role, grid=grid))
    problem = Problem(resolve_workload(f"{tmp_path / 'rows.py'}:kernel"), {"M": 200, "N": 50}, "f32")
    device, default = get_device("cpu"), {"BLOCK": 64}

    def compiled(config: Configuration) -> object:
        return compile_variant(problem, problem.variant(config), device.target), problem.variant(config)

    if refused:
        with pytest.raises(WorkloadError, match="writes only 200 of 10000 elements of the output 'y_ptr' at M=200"):
            Checker(problem, device, 1, default, compiled)  # type: ignore[arg-type]
    else:
        assert Checker(problem, device, 1, default, compiled).check(default).ok  # type: ignore[arg-type]


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
