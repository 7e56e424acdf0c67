"""What a configuration reads or writes outside the tensors shows, and spoils no other verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from checked_kernel import TEXT, checker_of

from deuteron.compiler.runtime.arrays.dtypes import numpy_dtype
from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner import Problem, resolve_workload
from deuteron.tuner.evaluate.check import run_once
from deuteron.tuner.workloads.inputs import outside
from deuteron.tuner.workloads.spec import DTYPES
from deuteron.tuner.workloads.widen import count_nan


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
