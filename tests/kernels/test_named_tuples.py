"""NamedTuples and list comprehensions: compile-time structures that Python people expect."""

from __future__ import annotations

from collections import namedtuple
from typing import NamedTuple

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError


class Matrix(NamedTuple):
    data: object
    shape: tuple
    strides: tuple = (1,)


Pair = namedtuple("Pair", "first second")  # noqa: PYI024 -- the other way to make one


@triton.jit
def cells(matrix, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (rows[:, None] < matrix.shape[0]) & (columns[None, :] < matrix.shape[1])
    return Pair(
        second=inside, first=matrix.data + rows[:, None] * matrix.strides[0] + columns[None, :] * matrix.strides[1]
    )


@triton.jit
def apply(operation, source, target, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    there = cells(source, ROWS, COLUMNS)
    here = cells(Matrix(target.data, target.shape, strides=target.strides), ROWS, COLUMNS)
    x = tl.load(there.first, mask=there.second, other=0)
    tl.store(here.first, operation.first(x, *operation.second), mask=here.second)


@triton.jit
def plus(x, y):
    return x + y


def test_named_tuples_as_arguments_and_results(launch, normal):
    x, y = normal(24, 28), np.zeros((24, 28), np.float32)
    strides = (28, 1)
    held = launch(
        apply, (1,), Pair(plus, (2.5,)), Matrix(x, x.shape, strides), Matrix(y, (20, 28), strides), ROWS=32, COLUMNS=32
    )
    assert np.array_equal(held[2][0][:20], x[:20] + np.float32(2.5))
    assert not held[2][0][20:].any()


@triton.jit
def in_a_loop(out, n, given):
    state = given
    for i in range(n):
        if i % 2 == 0:
            state = Pair(state.second, state.first + i)
    tl.store(out, state.first)
    tl.store(out + 1, state.second)


def test_named_tuples_carried_by_a_loop(launch):
    first, second = 3, 5
    for i in range(0, 7, 2):
        first, second = second, first + i
    assert list(launch(in_a_loop, (1,), np.zeros(2, np.int32), 7, Pair(3, 5))[0]) == [first, second]


@triton.jit
def second_of(out, pair):
    tl.store(out, pair.second)


def test_the_names_of_the_elements_make_another_variant(launch):
    turned = namedtuple("turned", "second first")  # noqa: PYI024
    for pair, wanted in ((Pair(7, 9), 9), (turned(7, 9), 7)):
        assert launch(second_of, (1,), np.zeros(1, np.int32), pair)[0][0] == wanted


def test_defaults_come_from_the_class():
    @triton.jit
    def kernel(out):
        tl.static_assert(Matrix(1, (2, 3)).strides[0] == 1)
        tl.store(out, len(Matrix(out, (2,))))

    out = np.zeros(1, np.int32)
    kernel[(1,)](out)
    assert out[0] == 3


@pytest.mark.parametrize("call", ["Pair(1)", "Pair(1, 2, 3)", "Pair(1, first=2)", "Pair(1, third=2)"])
def test_wrong_fields(call):
    @triton.jit
    def kernel(out):
        tl.store(out, CALL[0])  # noqa: F821 -- replaced below

    kernel._unsafe_update_src(kernel.src.replace("CALL", call))
    with pytest.raises(
        CompilationError, match=r"Pair does not take these \d values\n(.*\n)*hint: its fields: first, sec"
    ):
        kernel[(1,)](np.zeros(1, np.int32))


def test_a_class_of_tuples_is_not_run():
    """What a subclass adds to the names, be it a constructor, takes no part."""

    class Loud(namedtuple("Loud", "value")):  # noqa: PYI024
        def __new__(cls, value):
            raise AssertionError("the class was called")

    @triton.jit
    def kernel(out):
        tl.store(out, Loud(3).value)

    with pytest.raises(CompilationError, match="'Loud' is Python"):
        kernel[(1,)](np.zeros(1, np.int32))


@triton.jit
def comprehended(out, values, scale, N: tl.constexpr):
    doubled = [v * scale for v in values]
    picked = [10 * i + j for i in range(N) for j in tl.static_range(2) if i != 1]
    total = 0
    for value in doubled:
        total += value
    tl.store(out, total)
    tl.static_assert(len(picked) == 2 * N - 2)
    tl.store(out + 1, picked[-1])
    tl.store(out + 2, tl.tuple([x + 0 for x in doubled])[1])


def test_list_comprehensions(launch):
    held = launch(comprehended, (1,), np.zeros(3, np.int32), (3, 4, 5), 6, N=4)
    assert list(held[0]) == [72, 31, 24]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[i for i in range(n)]", "a list comprehension over"),
        ("[i for i in range(4) if n > i]", "which elements a list has"),
        ("[i for i in range(99999)]", "longer|more"),
    ],
)
def test_lists_of_run_time_length(text, message):
    @triton.jit
    def kernel(out, n):
        tl.store(out, len(LIST))  # noqa: F821

    kernel._unsafe_update_src(kernel.src.replace("LIST", text))
    with pytest.raises(CompilationError, match=message):
        kernel[(1,)](np.zeros(1, np.int32), 5)


def test_variables_of_a_comprehension_are_its_own(launch):
    @triton.jit
    def kernel(out):
        i = 77
        values = [2 * i for i in range(3)]
        tl.store(out, i + values[2])

    assert launch(kernel, (1,), np.zeros(1, np.int32))[0][0] == 81
