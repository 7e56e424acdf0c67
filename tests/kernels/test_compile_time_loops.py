"""Loops of functions of compile-time values, which compute as Python does: their results are known while compiling."""

from __future__ import annotations

import numpy as np

import deuteron as triton
import deuteron.language as tl


@triton.constexpr_function
def halved(n):
    a = -7
    for _ in range(n):
        a = a // 2
    return a


@triton.constexpr_function
def power(n):
    made = 1
    while n > 0:
        made *= 10
        n -= 1
    return made


@triton.constexpr_function
def log2(n):
    places = 0
    while n > 1:
        n >>= 1
        places += 1
    return places


@triton.constexpr_function
def first_divisor(n):
    for candidate in range(2, n):
        if n % candidate:
            continue
        return candidate
    return n


@triton.constexpr_function
def odd_ones(values, most):
    found = ()
    for value in values:
        for _ in range(10**12):
            if value % 2 == 0 or len(found) == most:
                break
            found = (*found, value)
            break
    while True:
        if len(found) >= most:
            break
        found += (0,)
    return found


@triton.jit
def computed(o_ptr, N: tl.constexpr):
    tl.store(o_ptr, halved(2))
    tl.store(o_ptr + 1, power(12) // 1000)
    i = tl.arange(0, log2(N))
    tl.store(o_ptr + 2 + i, i)
    tl.store(o_ptr + 6, first_divisor(91) + halved(N) * 100)
    found: tl.constexpr = odd_ones((4, 3, 2, 5, 7), N // 8)
    tl.store(o_ptr + 7, found[0] * 10 + found[1] + len(found) * 100)
    tl.store(o_ptr + 8, odd_ones((4,), 1)[0])


def test_loops_compute_as_python_does(launch) -> None:
    got = launch(computed, (1,), np.ones(9, np.int64), N=16)[0]
    assert got.tolist() == [-2, 10**9, 0, 1, 2, 3, 7 - 100, 235, 0]
