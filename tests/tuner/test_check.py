"""The correctness gate on the CPU: every configuration is judged on fresh outputs, at the shape that it is for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import pytest
from msgspec.structs import replace

from deuteron.compiler import knobs
from deuteron.compiler.launch_recipe import Guard, LaunchRecipe
from deuteron.compiler.runtime.arrays.dtypes import numpy_dtype
from deuteron.compiler.runtime.cpu.device import CpuDevice
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.runtime.variant import pipeline
from deuteron.tuner import Problem, resolve_workload
from deuteron.tuner.errors import WorkloadError
from deuteron.tuner.evaluate import check
from deuteron.tuner.evaluate import session as session_module
from deuteron.tuner.evaluate.check import LEAST_OFTEN, Checker, run_once
from deuteron.tuner.evaluate.compilation import compile_variant
from deuteron.tuner.evaluate.cut import SMALL_DIM, cut_problem
from deuteron.tuner.evaluate.messages import Prepare, Race, Screen
from deuteron.tuner.evaluate.session import ChildSession
from deuteron.tuner.measure import sampling
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads.inputs import outside
from deuteron.tuner.workloads.spec import DTYPES
from deuteron.tuner.workloads.tolerance import Comparison
from deuteron.tuner.workloads.widen import count_nan

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


def checker_of(
    problem: Problem,
    seed: int = 1,
    kind: Literal["cpu", "cuda"] = "cpu",
    default: Configuration = MappingProxyType({"WRONG": 0, "BLOCK": 64}),
) -> Checker:
    """A checker whose default is the right configuration, on the CPU; which may be said to be a GPU."""
    device = get_device("cpu")
    if kind == "cuda":
        device = CpuDevice()
        device.properties = DeviceProperties("fake", "cuda", memory_bytes=1 << 34)

    def compiled(config: Configuration) -> object:
        variant = problem.variant(config)
        return compile_variant(problem, variant, device.target), variant

    return Checker(problem, device, seed, default, compiled)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_outputs_are_poisoned_before_each_check(problem: Problem, kind: Literal["cpu", "cuda"]) -> None:
    """What an earlier configuration left in the outputs must not make the next one right."""
    configs = [{"WRONG": wrong, "BLOCK": 64} for wrong in range(4)]
    checker = checker_of(problem, kind=kind)
    for _ in range(2):
        assert [checker.check(config).ok for config in configs] == [True, False, False, False]
    assert "1 of 1000 elements are wrong; the worst at [3]" in str(checker.check(configs[1]).message)
    assert "never written" in str(checker.check(configs[3]).message)


def spoiling(tmp_path: Path) -> tuple[Problem, Configuration, Configuration]:
    """A problem, a configuration that is right, and one that gives the right result and writes into the input."""
    text = TEXT.replace(
        "    if WRONG != 3:\n",
        "    if WRONG == 4:\n        tl.store(x_ptr + o, y + 1, mask=mask)\n    if WRONG != 3:\n",
    )
    (tmp_path / "spoiling.py").write_text(text)
    problem = Problem(resolve_workload(f"{tmp_path / 'spoiling.py'}:kernel"), {"n": 1000}, "f32")
    right, spoils = ({"WRONG": wrong, "BLOCK": 64} for wrong in (0, 4))
    return problem, right, spoils


def test_who_writes_into_inputs_spoils_no_other_verdict(tmp_path: Path) -> None:
    problem, right, spoils = spoiling(tmp_path)
    checker = checker_of(problem)
    checker.launch(spoils)()
    assert checker.check(right).ok


def goes_wrong(monkeypatch: pytest.MonkeyPatch, checker: Checker, launches: Container[int]) -> None:
    """From now on these launches of a checker, counted from 0, leave an element of the output out."""
    right, count = checker.launch, itertools.count()
    monkeypatch.setattr(
        checker, "launch", lambda config: right({**config, "WRONG": int(next(count) in launches)} | {"BLOCK": 64})
    )


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


def session_of(problem: Problem) -> ChildSession:
    session = ChildSession()
    default = {"WRONG": 0, "BLOCK": 64}
    session.prepare(Prepare(problem.spec, problem.dims, "f32", "cpu", device="cpu", default=default, seed=1))
    return session


def test_what_is_wrong_is_not_timed(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(problem)
    timed: list[bool] = []
    look = session_module.first_look
    monkeypatch.setattr(session_module, "first_look", lambda *how: (timed.append(True), look(*how))[1])
    for wrong in (1, 0, 1):
        screened = session.screen(Screen({"WRONG": wrong, "BLOCK": 64}))
        assert (screened.status, screened.time_ns is None) == (("wrong_result", True) if wrong else ("ok", False))
        assert (screened.measure_seconds > 0) is (not wrong)
    assert timed == [True]


def test_what_is_wrong_after_it_was_timed_is_wrong(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the screen at the next launch, in a final at one of several."""
    default, other = {"WRONG": 0, "BLOCK": 64}, {"WRONG": 0, "BLOCK": 32}
    session = session_of(problem)
    checker, _ = session._ready()
    goes_wrong(monkeypatch, checker, [2])  # the check, what is timed, the check
    screened = session.screen(Screen(default))
    assert (screened.status, screened.time_ns) == ("wrong_result", None)
    assert str(screened.error).endswith("(not in its first launch: its programs may race)")
    assert session.screen(Screen(default)).status == "ok"
    monkeypatch.undo()
    goes_wrong(monkeypatch, checker, [2])
    slow = session.screen(Screen(default, best_ns=1e-3))
    assert (slow.status, slow.hopeless) == ("ok", True)
    monkeypatch.undo()
    checks = checker.check_often
    monkeypatch.setattr(
        checker, "check_often", lambda config: Comparison(2.0, "wrong") if config == other else checks(config)
    )
    raced = session.race(Race((default, other), 8, 0.0, 1, final=True))
    assert raced.errors == [None, "wrong (not in its first launch: its programs may race)"]
    assert [bool(times) for times in raced.times] == [True, False]


def test_who_damages_while_it_is_timed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who comes next; and of several that were timed together all but the default, which does it alone or not."""
    problem, right, spoils = spoiling(tmp_path)
    other = {"WRONG": 0, "BLOCK": 32}
    session = session_of(problem)
    checker, _ = session._ready()
    timed = sampling.Stopwatch.launches_per_sample

    def damaging(stopwatch: sampling.Stopwatch, launch: Callable[[], None]) -> int:
        checker.launch(spoils)()
        return timed(stopwatch, launch)

    monkeypatch.setattr(sampling.Stopwatch, "launches_per_sample", damaging)
    screened = session.screen(Screen(right))
    assert screened.status == "wrong_result" and "changed 1000 elements of the input" in str(screened.error)
    raced = session.race(Race((right, other, right), 8, 0.0, 1, final=True))
    assert [error is None for error in raced.errors] == [True, False, False]
    assert [bool(times) for times in raced.times] == [True, False, False]
    monkeypatch.undo()
    assert session.screen(Screen(right)).status == "ok"


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("tl.store(y_ptr + o, y, mask=o < n + 1)", "wrote 4 bytes behind 'y_ptr'"),
        ("tl.store(y_ptr - 1, 7.0)", "wrote 4 bytes before 'y_ptr'"),
        ("tl.store(x_ptr + n + 1 + o % 2, y, mask=mask)", "wrote 8 bytes behind 'x_ptr'"),
        ("tl.store(x_ptr - 2 + 0 * o, y); tl.store(y_ptr + n, 1.0)", "'x_ptr'; wrote 4 bytes behind 'y_ptr'"),
        ("tl.store(y_ptr - 1024 + tl.arange(0, 1024), 0.0)", "wrote 4096 bytes before 'y_ptr'"),
        ("tl.store(y_ptr - 16384 + tl.arange(0, 16384), 0.0)", "wrote 65536 bytes or more before 'y_ptr'"),
        ("tl.store(y_ptr + n + 15000, 0.0)", "wrote 4 bytes behind 'y_ptr'"),
        ("tl.store(x_ptr + o, y + 1, mask=o == 7)", "changed 1 elements of the input 'x_ptr'"),
        ("tl.store(x_ptr + o, y + 1, mask=mask)", "changed 1000 elements of the input 'x_ptr'"),
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


OUTPUTS = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if HOW == 4:
        o = tl.arange(0, BLOCK)
    mask = o < n
    x = tl.load(x_ptr + o, mask)
    y = {value}
    if HOW == 1:
        mask = mask & (o != 3)
    if HOW == 2:
        mask = mask & (o % 2 == 0)
    if HOW == 3:
        tl.atomic_add(y_ptr + o, y.to(tl.int32), mask)
    else:
        tl.store(y_ptr + o, y, mask)


workload = {{
    "dims": ["n"],
    "tensors": [
        {{"name": "x_ptr", "shape": ["n"]}}, {{"name": "y_ptr", "shape": ["n"], "role": "output", "dtype": "{dtype}"}}
    ],
    "scalars": {{"n": "n"}},
    "grid": ["cdiv(n, BLOCK)"],
    "space": {{"parameters": {{"HOW": [0, 1, 2, 3, 4], "BLOCK": [128]}}}},
}}
"""


def checker_over(tmp_path: Path, value: str, dtype: str, default: int, kind: Literal["cpu", "cuda"] = "cpu") -> Checker:
    (tmp_path / "outputs.py").write_text(OUTPUTS.format(value=value, dtype=dtype))
    problem = Problem(resolve_workload(f"{tmp_path / 'outputs.py'}:kernel"), {"n": 1000}, "f32")
    return checker_of(problem, kind=kind, default={"HOW": default, "BLOCK": 128})


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("x > -100", "i1"),  # all of it is True, as the poison is
        ("x > 100", "i1"),
        ("tl.where(x > -100, 126, 0)", "i8"),
        ("(x * 50).to(tl.int8)", "i8"),
        ("tl.sqrt(x - 100)", "f32"),  # all of it is NaN but the first, so that there is something to compare
        ("x.to(tl.int64) + 4294967296", "i64"),
    ],
)
def test_what_looks_like_an_unwritten_element_is_looked_at_twice(
    tmp_path: Path, kind: Literal["cpu", "cuda"], value: str, dtype: str
) -> None:
    if "sqrt" in value:
        value = "tl.where(o == 3, tl.sqrt(x - 100), x)"
    checker = checker_over(tmp_path, value, dtype, default=0, kind=kind)
    for _ in range(2):
        assert [checker.check({"HOW": how, "BLOCK": 128}).ok for how in (0, 1, 2)] == [True, False, False]


@pytest.mark.parametrize(
    ("default", "dtype", "said"),
    [
        (4, "i8", "leaves 872 of 1000 elements of the output 'y_ptr' unwritten, and none at n=104"),
        (4, "i1", "leaves 872 of 1000 elements of the output 'y_ptr' unwritten, and none at n=104"),
        (3, "i32", "leaves every element of the output 'y_ptr' unwritten, or adds to it: there is nothing to compare"),
    ],
)
def test_a_default_that_leaves_integers_unwritten_is_refused(
    tmp_path: Path, default: int, dtype: str, said: str
) -> None:
    """Its own poison would be what is expected of all others."""
    with pytest.raises(WorkloadError, match=said):
        checker_over(tmp_path, "x > -100", dtype, default)


def test_what_the_default_leaves_unwritten_is_left_by_others(tmp_path: Path) -> None:
    """At every shape, as it leaves the odd elements here."""
    checker = checker_over(tmp_path, "x > -100", "i1", default=2)
    assert [checker.check({"HOW": how, "BLOCK": 128}).ok for how in (0, 1, 2)] == [False, False, True]


TWO = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, o < n)
    tl.store(y_ptr + o, x, o < n)
    tl.store(z_ptr + o, (x * 100).to(tl.int32), (o < n) & (o % 2 == 0))


workload = {
    "dims": ["n"],
    "tensors": [
        {"name": "x_ptr", "shape": ["n"]},
        {"name": "y_ptr", "shape": ["n"], "role": "output"},
        {"name": "z_ptr", "shape": ["n"], "role": "output", "dtype": "i32"},
    ],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, BLOCK)"],
    "space": {"parameters": {"BLOCK": [128, 64]}},
}
"""


def test_integers_that_are_left_unwritten_at_every_shape_are_beside_floats_too(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    problem = Problem(resolve_workload(f"{tmp_path / 'two.py'}:kernel"), {"n": 1000}, "f32")
    assert checker_of(problem, default={"BLOCK": 128}).check({"BLOCK": 64}).ok


READING = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, MORE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    found = tl.load(x_ptr + i)
    for at in range(0, n + MORE, BLOCK):
        found = {step}
    tl.store(y_ptr, {end})


workload = {{
    "dims": ["n"],
    "tensors": [
        {{"name": "x_ptr", "shape": ["n"], "dtype": "{dtype}"}},
        {{"name": "y_ptr", "shape": ["1"], "role": "output", "dtype": "{dtype}"}},
    ],
    "scalars": {{"n": "n"}},
    "grid": ["1"],
    "space": {{"parameters": {{"MORE": [0, 1, 2, 4], "BLOCK": [64]}}}},
}}
"""


SUM = "found + tl.load(x_ptr + at + i, at + i < n + MORE, 0)"
EXTREMUM = "tl.{}imum(found, tl.load(x_ptr + at + i, at + i < n + MORE, 0))"


@pytest.mark.parametrize(
    ("dtype", "step", "end", "more"),
    [
        ("f32", SUM, "tl.sum(found, 0)", 1),
        ("f32", EXTREMUM.format("max"), "tl.max(found, 0)", 2),
        ("f32", EXTREMUM.format("min"), "tl.min(found, 0)", 4),
        ("i32", SUM, "tl.sum(found, 0)", 1),
        ("i32", EXTREMUM.format("max"), "tl.max(found, 0)", 2),
    ],
)
def test_what_is_read_outside_the_tensors_shows(tmp_path: Path, dtype: str, step: str, end: str, more: int) -> None:
    """In a sum from the first element behind the end on, in an extremum from one of the first few."""
    (tmp_path / "reading.py").write_text(READING.format(dtype=dtype, step=step, end=end))
    problem = Problem(resolve_workload(f"{tmp_path / 'reading.py'}:kernel"), {"n": 1000}, "f32")
    checker = checker_of(problem, default={"MORE": 0, "BLOCK": 64})
    assert checker.check({"MORE": 0, "BLOCK": 64}).ok
    assert not checker.check({"MORE": more, "BLOCK": 64}).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_around_tensors_is_no_number_or_a_large_one(dtype: str) -> None:
    around = outside(numpy_dtype(dtype))
    values = around.view(numpy_dtype(dtype)) if dtype != "i1" else around
    assert count_nan(values[:1]) == (dtype[0] in "fb")
    if dtype[0] in "iu":
        assert np.abs(values.astype(np.float64)).min() > 0.3 * np.iinfo(values.dtype).max
        assert dtype[0] == "u" or dtype == "i1" or (values.min() < 0 < values.max())


def test_a_small_problem_is_run_between_margins_too(tmp_path: Path) -> None:
    text = TEXT.replace("tl.store(y_ptr + o, y, mask=mask)", "tl.store(y_ptr + o, y, mask=o < n + 1)")
    (tmp_path / "outside.py").write_text(text)
    problem = Problem(resolve_workload(f"{tmp_path / 'outside.py'}:kernel"), {"n": 104}, "f32")
    assert run_once(problem, get_device("cpu"), {"WRONG": 0, "BLOCK": 64}, 1).damage == "wrote 4 bytes behind 'y_ptr'"


def test_a_default_that_writes_into_an_input_is_refused(tmp_path: Path) -> None:
    text = TEXT.replace("    if WRONG != 3:\n", "    tl.store(x_ptr + o, y, mask)\n    if WRONG != 3:\n")
    (tmp_path / "spoiling.py").write_text(text)
    problem = Problem(resolve_workload(f"{tmp_path / 'spoiling.py'}:kernel"), {"n": 1000}, "f32")
    with pytest.raises(WorkloadError, match="changed 104 elements of the input 'x_ptr' at n=104") as caught:
        checker_of(problem)
    assert '"inout"' in str(caught.value.hint)
