"""Calls spelled as Triton spells them: keywords, methods of tensors, and constants that are masks."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import TypeMismatch


@triton.jit
def keywords(x_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.static_assert(cond=True, msg="never")
    tl.device_assert(cond=x > 0, msg="positive", mask=None)
    tl.assume(cond=tl.sum(x) > 0)
    x = tl.max_constancy(input=tl.max_contiguous(input=tl.multiple_of(input=x, values=1), values=1), values=1)
    column, row = tl.broadcast(input=tl.expand_dims(input=x, axis=1), other=x[None, :])
    turned = tl.trans(input=column) * 2 + tl.zeros_like(input=row)
    pair = tl.join(a=tl.cast(input=tl.sum(turned, 1), dtype=tl.int64), b=x.to(tl.int64))
    left, right = tl.split(a=pair)
    tl.store(o_ptr + tl.arange(0, 2 * N), tl.interleave(a=left, b=right))
    tl.store(o_ptr + 2 * N + tl.arange(0, 2 * N), tl.cat(input=left, other=right, can_reorder=True))


def test_parameters_have_the_names_that_triton_gives_them(launch) -> None:
    x = np.arange(1, 9, dtype=np.int32)
    out = launch(keywords, (1,), x, np.zeros(32, np.int64), N=8, debug=True)[1]
    sums = np.full(8, 2 * x.sum())
    np.testing.assert_array_equal(out[:16], np.stack([sums, x], 1).ravel())
    np.testing.assert_array_equal(out[16:], [*sums, *x])


@triton.jit
def methods(x_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    (o_ptr + i).store(x.cdiv(3), mask=i < N - 1)
    (o_ptr + N).store(x.reduce_or(0))
    (o_ptr + N + 1).store(7)
    block = tl.make_block_ptr(o_ptr + 2 * N, (N,), (1,), (0,), (N,), (0,))
    block.store(x.__add__(1).__rsub__(100) + x.__eq__(3).to(tl.int32), boundary_check=(0,))
    tl.static_assert(x.__getitem__(None).shape == [1, N])


def test_methods_of_tensors(launch) -> None:
    x = np.array([1, 2, 3, 4, 8, 16, 33, 7], np.int32)
    out = launch(methods, (1,), x, np.zeros(24, np.int32), N=8)[1]
    np.testing.assert_array_equal(out[:7], (x[:7] + 2) // 3)
    np.testing.assert_array_equal(out[7:10], [0, 63, 7])
    np.testing.assert_array_equal(out[16:], 99 - x + (x == 3))


@triton.jit
def filled(o_ptr, VALUE: tl.constexpr, DTYPE: tl.constexpr, NAMED: tl.constexpr):
    if NAMED:
        value = VALUE
        tl.store(o_ptr + tl.arange(0, 4), tl.full((4,), value, DTYPE))
    else:
        tl.store(o_ptr + tl.arange(0, 4), tl.full((4,), VALUE, DTYPE))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (0xFFFFFFFF, tl.int32, -1),
        (0x80000000, tl.int32, -(2**31)),
        (-(2**31) - 1, tl.int32, 2**31 - 1),
        ((1 << 40) + 5, tl.int32, 5),
        (0xFF, tl.int8, -1),
        (-200, tl.int8, 56),
        (300, tl.uint8, 44),
        ((1 << 63) + 7, tl.uint32, 7),
        (True, tl.int32, 1),
    ],
)
def test_full_wraps_as_in_triton(launch, value, dtype, expected) -> None:
    """Values of Triton 3.6 and 3.8, whose IR has ``arith.constant -1 : i32`` for the first."""
    out = launch(filled, (1,), np.zeros(4, np.int64), VALUE=value, DTYPE=dtype, NAMED=False)[0]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"), [(300, tl.int8, 44), (1.5, tl.int32, 1), (-1, tl.uint8, 255), (3.0, tl.int8, 3)]
)
def test_full_of_a_named_number_converts_it(launch, value, dtype, expected) -> None:
    out = launch(filled, (1,), np.zeros(4, np.int64), VALUE=value, DTYPE=dtype, NAMED=True)[0]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(-1, tl.uint8), (1 << 63, tl.int64), (1 << 63, tl.int32), (1 << 64, tl.uint64), (1.5, tl.int32)],
)
def test_full_refuses_what_64_bits_of_the_kind_do_not_hold(value, dtype) -> None:
    with pytest.raises(TypeMismatch, match="out of range|not of type"):
        filled[(1,)](np.zeros(4, np.int64), VALUE=value, DTYPE=dtype, NAMED=False)


@triton.jit
def both_signs(x_ptr, o_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.static_assert(tl.join(x, x.to(tl.uint8)).dtype == tl.int8 and tl.join(x.to(tl.uint8), x).dtype == tl.uint8)
    tl.store(o_ptr + tl.arange(0, 2 * N), tl.interleave(x.to(tl.uint8), x))


def test_join_takes_the_first_of_two_signednesses(launch) -> None:
    x = np.array([1, -2, 3, -4], np.int8)
    out = launch(both_signs, (1,), x, np.zeros(8, np.int32), N=4)[1]
    np.testing.assert_array_equal(out, np.repeat(x.astype(np.uint8), 2))
