"""Elements that nobody wrote, and those that only look so: floats, integers, and one beside the other."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from checked_kernel import checker_of

from deuteron.tuner import Problem, resolve_workload
from deuteron.tuner.errors import WorkloadError
from deuteron.tuner.evaluate.check import Checker

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
