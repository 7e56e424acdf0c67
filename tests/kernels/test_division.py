"""Quotients and remainders of integers where C leaves them open: by 0, and of the least number by -1."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl

TYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@triton.jit
def divide(x_ptr, y_ptr, q_ptr, r_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(q_ptr + i, x // y)
    tl.store(r_ptr + i, x % y)


@triton.jit
def divide_one(x_ptr, y_ptr, q_ptr, r_ptr, N: tl.constexpr):
    for i in range(N):
        x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
        tl.store(q_ptr + i, x // y)
        tl.store(r_ptr + i, x % y)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("kernel", [divide, divide_one])
def test_quotients_and_remainders(launch, dtype: type, kernel) -> None:
    """By 0 as NVIDIA's GPUs divide: all bits are set."""
    limits = np.iinfo(dtype)
    numbers = [limits.min, limits.max, 0, 1, 2, 7, 100, limits.max - 1, *((-1, -2, -7) if limits.min else (3, 5, 9))]
    divisors = [0, 1, 3, limits.max, limits.min, numbers[-3]]
    x, y = (np.resize(np.array(side, dtype), 64) for side in zip(*itertools.product(numbers, divisors), strict=True))
    _, _, quotients, remainders = launch(kernel, (1,), x, y, np.zeros(64, dtype), np.zeros(64, dtype), N=64)
    for a, b, q, r in zip(x.tolist(), y.tolist(), quotients, remainders, strict=True):
        exact = abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1) if b else -1
        wrapped = np.array([exact & (2**limits.bits - 1)], np.uint64).astype(dtype)[0]
        assert q == wrapped, (a, b, q)
        assert r == (a - exact * b if b else wrapped), (a, b, r)


@triton.jit
def divide_in_loop(x_ptr, y_ptr, out_ptr, TIMES):
    x, y, total = tl.load(x_ptr), tl.load(y_ptr), 0
    for _i in range(TIMES):
        total += x // y + x % y
    tl.store(out_ptr, total)


@pytest.mark.parametrize(("divisor", "times", "total"), [(0, 0, 0), (0, 3, -6), (7, 3, 18)])
def test_quotients_of_a_loop_are_made_ahead_of_it_even_if_it_does_not_run(launch, divisor, times, total) -> None:
    x, y = np.full(1, 30, np.int32), np.full(1, divisor, np.int32)
    assert launch(divide_in_loop, (1,), x, y, np.zeros(1, np.int32), times)[2] == total
