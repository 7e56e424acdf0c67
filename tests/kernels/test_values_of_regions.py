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
