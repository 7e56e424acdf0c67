"""What is wrong with a kernel is told in the same words and at the same place, compiled or run as Python."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compat.triton.runtime.errors import InterpreterError as TritonsInterpreterError
from deuteron.compiler import knobs
from deuteron.compiler.errors import CompilationError, InterpreterError, MemoryAccessError


@deuteron.jit
def squared(p, v):
    tl.store(p, v**2)


@deuteron.jit
def misspelt(x, n):
    tl.store(x, tl.maximun(n, 1))  # type: ignore[attr-defined]


@deuteron.jit
def undefined(x, n):
    tl.store(x + n, unknown + n)  # type: ignore[name-defined]  # noqa: F821


@deuteron.jit
def wrong_keyword(x, n):
    tl.store(x, n, masks=n > 1)  # type: ignore[call-arg]


@deuteron.jit
def text_plus_number(x, n):
    tl.store(x, "a" + n)


@deuteron.jit
def in_a_helper(x, n):
    y = n + 1
    squared(
        x,
        y,
    )


@deuteron.jit
def on_several_lines(x, n):
    tl.store(
        x + tl.arange(0, 4),
        tl.zeros((4,), tl.float32)
        + tl.zeros((8,), tl.float32),
    )  # fmt: skip


@deuteron.jit
def condition_of_many(x, n):
    if tl.arange(0, 4) > n:
        tl.store(x, 1)


@deuteron.jit
def numbers_as_mask(x, n):
    at = tl.arange(0, 4)
    tl.store(x + at, n, mask=at)


@deuteron.jit
def compared_with_an_array(x, n):
    at = tl.arange(0, 4)
    tl.store(x + at, n, mask=at < x)


@deuteron.jit
def compared_with_none(x, n):
    at = tl.arange(0, 4)
    tl.store(x + at, n, mask=at == None)  # noqa: E711


def inner() -> Any:
    scale = tl.constexpr(2)

    @deuteron.jit
    def kernel(x, n):
        y = n * scale and n
        tl.store(x, y.nothing)

    return kernel


BOTH = [
    misspelt,
    undefined,
    wrong_keyword,
    text_plus_number,
    in_a_helper,
    on_several_lines,
    condition_of_many,
    numbers_as_mask,
    compared_with_an_array,
    compared_with_none,
    inner(),
]


def raised(kernel: Any, interpret: bool) -> CompilationError:
    with knobs.interpret.scope(interpret), pytest.raises(CompilationError) as caught:
        kernel[(1,)](np.zeros(4, np.float32), 3)
    return caught.value


@pytest.mark.parametrize("kernel", BOTH, ids=lambda kernel: kernel.__name__)
def test_the_interpreter_says_what_compilers_say(kernel: Any) -> None:
    compiled, interpreted = raised(kernel, False), raised(kernel, True)
    assert str(interpreted) == str(compiled) and compiled.location is not None
    assert type(interpreted) is type(compiled) and interpreted.location == compiled.location
    assert isinstance(interpreted, TritonsInterpreterError)


def shape_of(number: int) -> Any:
    """A function of Python's, which kernels may call where they run as Python."""
    return np.zeros(number).reshape(7, 7)


@deuteron.jit
def raises(x, n):
    print("Python")
    if n > 2:
        raise KeyError("mine")


@deuteron.jit
def depends_on_data(x, n):
    print(dict.fromkeys("ab", 1)); tl.store(x, [1, 2][int(n)])  # fmt: skip  # noqa: E702


@deuteron.jit
def in_python(x, n):
    y = 1; shape_of(int(n) + y)  # fmt: skip  # noqa: E702


@deuteron.jit
def calls_one_that_raises(x, n):
    y = n
    raises(x, y)


@pytest.mark.parametrize(
    ("kernel", "message", "caret"),
    [
        (raises, "KeyError: 'mine'", "raise KeyError"),
        (depends_on_data, "IndexError: list index out of range", "[1, 2][int(n)]"),
        (in_python, "ValueError: cannot reshape array of size 4", "shape_of("),
    ],
)
def test_what_python_raises_has_a_place(kernel: Any, message: str, caret: str) -> None:
    error = raised(kernel, True)
    lines, first = inspect.getsourcelines(kernel.fn)
    offset, line = next((at, line) for at, line in enumerate(lines) if caret in line)
    assert isinstance(error, InterpreterError) and error.message.startswith(message)
    assert error.location is not None and error.location.line == first + offset
    assert str(error).splitlines()[1:3] == [line.rstrip("\n"), " " * line.index(caret) + "^"]
    assert error.__cause__ is not None and message.startswith(type(error.__cause__).__name__)


def test_who_called_is_told() -> None:
    error = raised(calls_one_that_raises, True)
    line = inspect.getsourcelines(calls_one_that_raises.fn)[1] + 3
    assert error.message == "KeyError: 'mine'"
    assert error.calls == (f"at 3:4: in calls_one_that_raises, {__file__}:{line}:5",)


@deuteron.jit
def outside(x, n):
    y = n + n; tl.store(x, tl.load(x + 100 * y))  # fmt: skip  # noqa: E702


def test_accesses_outside_name_their_column() -> None:
    line = inspect.getsourcelines(outside.fn)[1] + 2
    with knobs.interpret.scope(True), pytest.raises(MemoryAccessError, match=rf"load at .*:{line}:28 by program"):
        outside[(1,)](np.zeros(4, np.float32), 3)


def condition_of_numbers() -> Any:
    @deuteron.jit
    def kernel(x, n):
        at = tl.arange(0, 4)
        tl.store(x + at, tl.where(at, n, 0))

    return kernel


def condition_of_other_numbers() -> Any:
    @deuteron.jit
    def kernel(x, n):
        at = tl.arange(0, 4)
        tl.store(x + at, tl.where(at, n, 1))

    return kernel


@pytest.mark.parametrize("interpret", [False, True])
def test_warnings_are_those_of_the_kernels_module(interpret: bool) -> None:
    """Each place warns once, as under Python's own rule, and filters find the module."""
    kernels = [condition_of_numbers(), condition_of_other_numbers()]
    with knobs.interpret.scope(interpret), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        for kernel in kernels:
            for kind in (np.float32, np.int32):
                kernel[(1,)](np.zeros(4, kind), 3)
        warnings.filterwarnings("ignore", module=__name__)
        condition_of_numbers()[(1,)](np.zeros(4, np.float64), 3)
    lines = [inspect.getsourcelines(kernel.fn)[1] + 3 for kernel in kernels]
    assert [(w.filename, w.lineno) for w in warned] == [(__file__, line) for line in lines]
