"""Numbers: integers, booleans and scalars, what operators make of them, and their conversions."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.language.extra import libdevice


@triton.jit
def ints(u_ptr, i_ptr, o_ptr, o64_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    m = o < n
    u = tl.load(u_ptr + o, mask=m, other=1)
    i = tl.load(i_ptr + o, mask=m, other=1)
    h = u
    h ^= h >> 16
    h *= 2246822507
    h ^= h >> 13
    h = h * 3266489909
    h ^= h >> 16
    r = (h % 10).to(tl.int32) + i // 3 * 1000 + i % 3 * 100
    r = r + (i >> 1) - (i & 15 | 16) + ~i + -i
    tl.store(o_ptr + o, r, mask=m)
    big = i.to(tl.int64) * 3000000000 + (i.to(tl.int64) << 33)
    big += tl.umulhi(u, u).to(tl.int64)
    tl.store(o64_ptr + o, big, mask=m)


def test_integers_wrap_and_divide_as_in_c(launch, rng) -> None:
    u = rng.integers(0, 2**32, 50, dtype=np.uint32)
    i = rng.integers(-(2**20), 2**20, 50).astype(np.int32)
    h = u ^ (u >> 16)
    h = h * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)
    h ^= h >> 16
    quotient = np.trunc(i / 3).astype(np.int64)
    small = (h % 10) + quotient * 1000 + (i - 3 * quotient) * 100 + (i >> 1) - ((i & 15) | 16)
    high = ((u.astype(np.uint64) ** 2) >> np.uint64(32)).astype(np.int64)
    big = i.astype(np.int64) * 3000000000 + (i.astype(np.int64) << 33) + high
    zeros = np.zeros(50, np.int32), np.zeros(50, np.int64)
    done = launch(ints, (1,), u, i, *zeros, 50, BLOCK=64)
    np.testing.assert_array_equal(done[2], (small + ~i - i).astype(np.int32))
    np.testing.assert_array_equal(done[3], big)


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def bools(a_ptr, b_ptr, o_ptr, c_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    m = o < n
    a = tl.load(a_ptr + o, mask=m, other=False)
    b = tl.load(b_ptr + o, mask=m, other=0)
    c = a & b | ~a & ~b
    d = a ^ b
    tl.store(o_ptr + o, c, mask=m)
    tl.store(c_ptr, tl.sum(d.to(tl.int32)))
    tl.store(c_ptr + 1, tl.sum(d & m))
    tl.store(c_ptr + 2, tl.max(d.to(tl.int32)))
    any_ = tl.reduce(d.to(tl.int32), 0, _or)
    tl.store(c_ptr + 3, any_)
    anyb = tl.reduce(d, 0, _or)
    tl.store(c_ptr + 4, anyb)
    if anyb:
        tl.store(c_ptr + 5, 7)
    tl.store(c_ptr + 6, tl.sum(a * 2))
    tl.store(c_ptr + 7, tl.sum(tl.where(a, 1, 0)))
    tl.store(c_ptr + 8, tl.cumsum(d.to(tl.int32), 0).to(tl.int32).max(0))
    e = not anyb
    tl.store(c_ptr + 9, e)


def test_booleans(launch, rng) -> None:
    a, b = rng.random(50) < 0.5, rng.random(50) < 0.5
    d = (a ^ b).sum()
    done = launch(bools, (1,), a, b, np.zeros(50, bool), np.zeros(10, np.int32), 50, BLOCK=64)
    np.testing.assert_array_equal(done[2], a == b)
    assert done[3].tolist() == [d, d, 1, 1, 1, 7, a.sum() * 2, a.sum(), d, 0]


@triton.jit
def greatest_in_blocks(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    greatest = 0.0
    for start in range(tl.cdiv(n, BLOCK)):
        at = start * BLOCK + offsets
        greatest = tl.maximum(greatest, tl.max(tl.load(x_ptr + at, mask=at < n, other=0)))
    tl.store(o_ptr, greatest)


def test_sizes_of_tiles_may_be_true_for_one(launch, rng) -> None:
    # linghe takes max([columns % size == 0 for size in sizes]) for the size of a block, and Triton one column
    x = rng.random(7).astype(np.float32)
    done = launch(greatest_in_blocks, (1,), x, np.zeros(1, np.float32), len(x), BLOCK=True)
    assert done[1][0] == x.max()


@triton.jit
def scalars(o_ptr, i, f, b, neg, big):
    x = i * f
    tl.store(o_ptr + 0, x)
    tl.store(o_ptr + 1, i // 3)
    tl.store(o_ptr + 2, i % 3)
    tl.store(o_ptr + 3, i / 4)
    if b:
        tl.store(o_ptr + 4, 1)
    else:
        tl.store(o_ptr + 4, 2)
    tl.store(o_ptr + 5, neg // 2)
    tl.store(o_ptr + 6, (big >> 32).to(tl.float64))
    tl.store(o_ptr + 7, min(i, 5, neg))
    tl.store(o_ptr + 8, max(i, 5))
    tl.store(o_ptr + 9, abs(neg))
    tl.store(o_ptr + 10, tl.cdiv(i, 4))
    tl.store(o_ptr + 11, float(i))
    tl.store(o_ptr + 12, tl.sqrt(f))
    tl.store(o_ptr + 13, tl.exp2(f * 1.0))
    tl.store(o_ptr + 14, i if b else neg)
    tl.store(o_ptr + 15, 1 < i < 20)
    tl.store(o_ptr + 16, tl.where(i > 3, f, 0.0))
    tl.store(o_ptr + 17, (i > 3) & (neg < 0))
    tl.store(o_ptr + 18, i > 3 and (not neg < 0) or b)
    tl.store(o_ptr + 19, tl.maximum(i, neg).to(tl.float32) + 2 ** (-3))


def test_scalars(launch, close) -> None:
    expected = [
        7 * 2.25,
        2,
        1,
        1.75,
        1,
        -2,
        5,
        -5,
        7,
        5,
        2,
        7,
        1.5,
        2**2.25,
        7,
        1,
        2.25,
        1,
        1,
        7.125,
    ]
    done = launch(scalars, (1,), np.zeros(20), 7, 2.25, True, -5, 5 << 32)
    close(done[0], np.array(expected), 1e-6)


@triton.jit
def rounded(x_ptr, even_ptr, away_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(even_ptr + i, libdevice.llrint(x))
    tl.store(away_ptr + i, libdevice.llround(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_to_int64(launch, dtype):
    x = np.array([0.5, 1.5, -2.5, 2.49, -0.5, 3e9, -4294967296.0, 7], dtype)
    x[5] = np.rint(x[5])
    out = np.full(8, 99, np.int64)
    _, even, away, *_ = launch(rounded, (1,), x, out, out, N=8)
    np.testing.assert_array_equal(even, np.rint(x).astype(np.int64))
    np.testing.assert_array_equal(away, np.trunc(x + np.copysign(0.5, x)).astype(np.int64))


@triton.jit
def masked_by_a_scalar(x_ptr, o_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    wanted = (tl.load(x_ptr) > 0)[:, None]
    tl.store(o_ptr + i, 1.0, mask=(i < n) & wanted)
    tl.static_assert(wanted[None, :].shape == (1, 1))


@pytest.mark.parametrize("first", [1.0, -1.0])
def test_a_scalar_takes_new_dimensions(launch, first):
    out = launch(masked_by_a_scalar, (1,), np.full(1, first, np.float32), np.zeros(8, np.float32), 5, N=8)[1]
    np.testing.assert_array_equal(out, np.float32((np.arange(8) < 5) & (first > 0)))


@triton.jit
def wide_constants(x_ptr, o_ptr):
    top = 1 << 31
    kinds = (1 << 30) | top
    values = ~kinds
    far = -(1 << 40)
    far += 1
    tl.store(o_ptr, tl.load(x_ptr) & values)
    tl.store(o_ptr + 1, tl.load(x_ptr) + far)
    kept: tl.constexpr = 1 << 33
    tl.static_assert(kept == 8589934592)


def test_an_integer_too_wide_for_int32_has_its_own_type_once_it_has_a_name() -> None:
    """uint32 and int64 here, so that its complement is not -3221225473. A kernel that runs as Python has Python's."""
    out = np.zeros(2, np.int64)
    wide_constants[(1,)](np.array([-5], np.int32), out)
    np.testing.assert_array_equal(out, [-5 & 0x3FFFFFFF, -4 - (1 << 40)])
