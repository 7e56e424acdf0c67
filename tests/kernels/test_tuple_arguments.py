"""Arguments that are tuples, and kernels with ``*args``: what every target makes of them is what Python would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.tools.tensor_descriptor import TensorDescriptor

DTYPES = (np.float32, np.float16, np.int32, np.int64, np.uint8)


@triton.jit
def _term(array, place, factor):
    x = tl.load(array + place).to(tl.float32)
    return x if factor is None else x * factor


@triton.jit
def _sum(first, *others):
    for other in others:
        first += other
    return first


@triton.jit
def sum_terms(out, *terms, SCALE: tl.constexpr = 1):
    total = 0.0
    for i in tl.static_range(len(terms)):
        total += _term(*terms[i])
    tl.store(out, total * SCALE)


@triton.jit
def sum_numbers(out, *numbers):
    tl.store(out, _sum(*numbers) - numbers[-1])
    tl.store(out + 1, len(numbers))


def terms(rng: np.random.Generator, count: int) -> list[Any]:
    """(array, place, factor): arrays of any dtype and alignment, numbers that are specialised and that are not."""
    made = []
    for _ in range(count):
        array = rng.integers(0, 100, 40).astype(rng.choice(DTYPES))[rng.integers(0, 4) :]
        factor = [None, 1, 3, 16, -2.5, True][rng.integers(0, 6)]
        made.append((array, [0, 1, 16, int(rng.integers(2, 36))][rng.integers(0, 4)], factor))
    return made


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_kernel_takes_any_number_of_arguments(launch, rng, close, count: int) -> None:
    for scale in (1, 3):
        given = terms(rng, count)
        exact = sum(float(array[place]) * (1 if factor is None else factor) for array, place, factor in given)
        options = {} if scale == 1 else {"SCALE": scale}
        got = launch(sum_terms, (1,), np.zeros(1, np.float32), *given, **options)[0]
        close(got, np.array([exact * scale]))


@pytest.mark.parametrize("numbers", [(1,), (2.5, 1), (3, 16, 1, -4.5), (-7, 2**40, 5)])
def test_arguments_are_passed_on(launch, close, numbers: tuple[float, ...]) -> None:
    got = launch(sum_numbers, (1,), np.zeros(2, np.float64), *numbers)[0]
    close(got, np.array([sum(numbers[:-1]), len(numbers)]))


@triton.jit
def copy_strided(out, source, BLOCK: tl.constexpr):
    array, (rows, columns), strides = source
    m, n = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (m < rows) & (n < columns)
    x = tl.load(array + m * strides[0] + n * strides[1], mask=inside, other=-1.0)
    tl.store(out[0] + m * out[2][0] + n * out[2][1], x, mask=(m < out[1][0]) & (n < out[1][1]))


@pytest.mark.parametrize("transposed", [False, True])
def test_arrays_with_their_shapes_and_strides(launch, normal, transposed: bool) -> None:
    """A struct of an array, as kernels are given them: a stride of 1 is known, others may carry guards."""
    x, out = normal(13, 24), np.zeros((16, 16), np.float32)
    view = x.T if transposed else x
    strides = tuple(n // 4 for n in view.strides)
    got = launch(copy_strided, (1,), (out, (16, 16), (16, 1)), (x, view.shape, strides), BLOCK=16)[0][0]
    exact = np.full((16, 16), -1, np.float32)
    exact[: view.shape[0], : view.shape[1]] = view[:16, :16]
    np.testing.assert_array_equal(got, exact)


@triton.jit
def copy_blocks(*pairs, SIZE: tl.constexpr):
    for source, target in pairs:
        target.store([0, 0], source.load([0, 0]) + 1)


def test_descriptors_in_tuples(launch, normal) -> None:
    def described(array: np.ndarray) -> TensorDescriptor:
        return TensorDescriptor.from_tensor(array, [16, 16])

    arrays = [(normal(16, 32), np.zeros((16, 16), np.float32)), (normal(8, 16), np.zeros((16, 16), np.float32))]
    got = launch(copy_blocks, (1,), *((described(a), described(b)) for a, b in arrays), SIZE=16)
    exact = np.ones((16, 16), np.float32)
    np.testing.assert_array_equal(got[0][1].base, arrays[0][0][:, :16] + 1)
    exact[:8] += arrays[1][0]
    np.testing.assert_array_equal(got[1][1].base, exact)


@triton.jit
def compile_time(out, given, *rest: tl.constexpr):
    name, kind, inner, none, empty = given
    tl.static_assert(name == "plus" and none is None and len(empty) == 0)
    tl.store(out + tl.arange(0, rest[0]), inner[0](tl.full((rest[0],), rest[1], kind), inner[1]))


@triton.jit
def _plus(x, y):
    return x + y


def test_leaves_that_are_known_while_compiling(launch) -> None:
    given = ("plus", tl.int32, (_plus, 5), None, ())
    np.testing.assert_array_equal(launch(compile_time, (1,), np.zeros(8, np.int32), given, 8, 3)[0], [8] * 8)


@triton.jit
def asked(out, n, x, *rest):
    tl.store(out, n.to(tl.int64) * rest[0].to(tl.int64))
    tl.store(out + 1, (x.to(tl.float32) * 2).to(tl.int64) if n.type.is_int() and x.dtype == tl.float32 else -1)


@pytest.mark.parametrize("n", [1, 2])
def test_a_number_can_be_asked_whatever_it_is(launch, n: int) -> None:
    """Of an argument that is 1 the value is known, also where the kernel runs as Python."""
    got = launch(asked, (1,), np.zeros(2, np.int64), n, 2.5, n)[0]
    np.testing.assert_array_equal(got, [n * n, 5])


TABLE = tl.constexpr([1, 2, (4, [8])])


@triton.constexpr_function
def listed(place):
    return PLACES[place]


PLACES = [16, 32]


@triton.jit
def from_lists(o_ptr, SIZES: tl.constexpr, NESTED: tl.constexpr):
    tl.store(o_ptr, TABLE[2][1][0] + TABLE[-3])
    first, second = SIZES
    tl.store(o_ptr + 1, SIZES[1] * first)
    tl.store(o_ptr + 2, len(SIZES) + NESTED[1][0])
    for i in tl.static_range(len(SIZES)):
        tl.store(o_ptr + 3 + i, SIZES[i] + second + listed(i))


def test_lists_that_are_known_are_read(launch) -> None:
    got = launch(from_lists, (1,), np.zeros(5, np.int64), SIZES=[3, 8], NESTED=(5, [6]))[0]
    assert got.tolist() == [9, 24, 8, 27, 48]
