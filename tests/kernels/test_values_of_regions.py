"""Tiles from outside that several regions read: each finds them whether or not the others ran."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import deuteron
import deuteron.language as tl

N = 32


@deuteron.jit
def two_branches(x, y, n, turned: tl.constexpr, kind: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    lower = tl.where(i[:, None] >= i[None, :], 1.0, 0.0).to(kind)
    if n > 5:
        tl.store(y + at, tl.dot(tl.load(x + at), tl.trans(lower) if turned else lower) + 1)
    if n <= 5:
        tl.store(y + at, tl.dot(tl.load(x + at), tl.trans(lower) if turned else lower))


@deuteron.jit
def a_branch_and_what_follows(x, y, n, turned: tl.constexpr, kind: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    lower = tl.where(i[:, None] >= i[None, :], 1.0, 0.0).to(kind)
    if n > 5:
        tl.store(y + at, tl.dot(tl.load(x + at), tl.trans(lower) if turned else lower) + 1)
    tl.store(y + at, tl.dot(tl.load(x + at), tl.trans(lower) if turned else lower))


@deuteron.jit
def a_loop_and_what_follows(x, y, n, turned: tl.constexpr, kind: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    lower = tl.where(i[:, None] >= i[None, :], 1.0, 0.0).to(kind)
    total = tl.zeros([N, N], tl.float32)
    for _ in range(3, n):
        total = tl.dot(tl.load(x + at), tl.trans(lower) if turned else lower, total)
    tl.store(y + at, tl.dot(tl.load(x + at), tl.trans(lower) if turned else lower, total))


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "kernel", [two_branches, a_branch_and_what_follows, a_loop_and_what_follows], ids=lambda k: k.__name__
)
def test_an_operand_from_outside(kernel, turned, kind):
    dtype = ml_dtypes.bfloat16 if kind == "bfloat16" else np.dtype(kind)
    x, y = np.random.default_rng(0).integers(0, 4, (N, N)).astype(dtype), np.zeros((N, N), np.float32)
    kernel[(1,)](x, y, 3, turned=turned, kind=getattr(tl, kind), N=N)
    lower = np.tril(np.ones((N, N)))
    np.testing.assert_array_equal(y, x.astype(np.float64) @ (lower.T if turned else lower))


@deuteron.jit
def larger(a, b):
    """What the branches give is computed before them."""
    x, y = tl.abs(a), tl.abs(b)
    if x >= y:
        return x
    return y


@deuteron.jit
def first_of_the_longest(a, i, b, k):
    """What they give comes from the operands themselves, and the condition has a branch of its own."""
    before = i < k
    if a == b:
        first = before
    else:
        first = a > b
    if first:
        return a, i
    return b, k


@deuteron.jit
def branches_that_combine(x, largest, running, rows, where, M: tl.constexpr, N: tl.constexpr):
    i, k = tl.arange(0, M), tl.arange(0, N)
    tile = tl.load(x + i[:, None] * N + k[None, :])
    tl.store(largest + k, tl.reduce(tile, 0, larger))
    tl.store(running + i[:, None] * N + k[None, :], tl.associative_scan(tile, 1, larger))
    most, at = tl.reduce((tile, tl.broadcast_to(k[None, :], (M, N))), 1, first_of_the_longest)
    tl.store(rows + i, most)
    tl.store(where + i, at)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_branches_of_combining_functions(launch, dtype):
    x = np.random.default_rng(0).integers(-9, 9, (16, 64)).astype(dtype)
    zeros = np.zeros(64, dtype), np.zeros_like(x), np.zeros(16, dtype), np.zeros(16, np.int32)
    _, largest, running, rows, where = launch(branches_that_combine, (1,), x, *zeros, M=16, N=64)
    np.testing.assert_array_equal(largest, np.abs(x).max(0))
    np.testing.assert_array_equal(np.abs(running), np.maximum.accumulate(np.abs(x), 1))
    np.testing.assert_array_equal(rows, x.max(1))
    np.testing.assert_array_equal(where, x.argmax(1))
