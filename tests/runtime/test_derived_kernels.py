"""Kernels that programs make of the text of others, as Triton's own library of kernels does."""

from __future__ import annotations

import types
from pathlib import Path

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import JITFunction
from deuteron.compiler.errors import CompilationError


@deuteron.jit
def doubled(x):
    return x * 2


def scaled_by(factor: int) -> JITFunction:
    FACTOR = tl.constexpr(factor)

    @deuteron.jit(repr=lambda launch: "scaled")
    def scaled(x, out, FN: tl.constexpr, N: tl.constexpr):
        o = tl.arange(0, N)
        y = FN(tl.load(x + o))
        tl.store(out + o, y * FACTOR)

    return scaled


def with_function(kernel: JITFunction, function: JITFunction, body: str) -> JITFunction:
    """``kernel`` with ``function`` for FN, named ``special``, and with the place of ``kernel``."""
    names = {**kernel.get_capture_scope(), function.__name__: function}
    empty = types.FunctionType((lambda: None).__code__, names)
    empty.__name__ = empty.__qualname__ = "special"
    made = JITFunction(empty, repr=lambda launch: f"{kernel.repr(launch)}_{function.repr(launch)}")
    made._unsafe_update_src(
        f"def special(x, out, N: tl.constexpr):\n    FN: tl.constexpr = {function.__name__}\n{body}"
    )
    made.raw_src = list(kernel.raw_src)
    made.starting_line_number = kernel.starting_line_number
    made.file_name, made.def_file_col_number = kernel.file_name, kernel.def_file_col_number
    made.def_file_line_number = kernel.def_file_line_number - 1
    return made


def test_a_kernel_is_made_of_the_text_and_the_names_of_another() -> None:
    kernel = scaled_by(5)
    made = with_function(kernel, doubled, "\n".join(line[4:].rstrip() for line in kernel.raw_src[2:]) + "\n")
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    compiled = made[(1,)](x, out, N=8)
    np.testing.assert_array_equal(out, x * 10)
    assert compiled.name == "scaled_doubled" and made.__globals__["doubled"] is doubled
    assert (made.file_name, made.starting_line_number) == (__file__, kernel.starting_line_number)
    assert made.raw_src == kernel.raw_src and made.def_file_col_number == 5


def test_errors_name_the_place_that_the_text_came_from() -> None:
    kernel = scaled_by(5)
    made = with_function(kernel, doubled, "    o = tl.arange(0, N)\n    missing(o)\n")
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = lines.index("        y = FN(tl.load(x + o))") + 1
    with pytest.raises(CompilationError, match=f"test_derived_kernels.py:{line}:9"):
        made[(1,)](np.zeros(8, np.float32), np.zeros(8, np.float32), N=8)


@deuteron.jit
def times_a_factor(x, out, N: tl.constexpr):
    o = tl.arange(0, N)  # of all
    tl.store(out + o, tl.load(x + o) * (FACTOR))  # noqa: F821


def test_a_name_in_parentheses_is_replaced_by_an_expression() -> None:
    made = JITFunction(times_a_factor.fn)
    assert made.src.startswith("def times_a_factor(x, out, N: tl.constexpr):\n    o = tl.arange(0, N)  # of all\n")
    made._unsafe_update_src(made.src.replace("FACTOR", "1 + 1"))
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    made[(1,)](x, out, N=8)
    np.testing.assert_array_equal(out, x * 2)


def test_another_text_has_other_lines() -> None:
    kernel = scaled_by(5)
    assert len(kernel.raw_src) == 5 and len(kernel.params) == 4 and kernel.def_file_line_number > 1
    kernel._unsafe_update_src("def scaled(out):\n    tl.store(out, 1)\n")
    assert len(kernel.raw_src) == 2 and [p.name for p in kernel.params] == ["out"]
    assert (kernel.starting_line_number, kernel.def_file_line_number) == (1, 1)


def test_what_a_kernel_captures_and_is_called() -> None:
    assert doubled.get_capture_scope() is doubled.__globals__ and doubled.get_capture_scope()["np"] is np
    assert scaled_by(7).get_capture_scope()["FACTOR"] == 7
    assert doubled.repr(None) == "doubled"  # type: ignore[arg-type]  # programs ask so for a function that is no launch
