"""Literals beside tensors: in comparisons, extrema and fma they are tensors of a type of their own, as in Triton."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import deuteron as triton
import deuteron.language as tl


@triton.jit
def extrema(h_ptr, b_ptr, q_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    h, b, q = tl.load(h_ptr + i), tl.load(b_ptr + i), tl.load(q_ptr + i)
    tl.store(o_ptr + i, 1.0 / tl.maximum(h, 1e-8))
    tl.store(o_ptr + N + i, tl.maximum(q, 0) * 3)
    tl.store(o_ptr + 2 * N + i, tl.minimum(q, 100) - 101)
    tl.store(o_ptr + 3 * N + i, tl.maximum(b, b) + 0.001)
    tl.store(o_ptr + 4 * N + i, tl.clamp(h, 0.0, 1.0) * 0.3333)
    tl.store(o_ptr + 5 * N + i, tl.fma(h, 60000.0, 0.5))
    tl.store(o_ptr + 6 * N + i, tl.maximum(h, b) * 60000.0)
    tl.store(o_ptr + 7 * N + i, max(q, 300) + min(q, -1))
    tl.static_assert(tl.maximum(h, h).dtype == tl.float16 and tl.maximum(h, 1).dtype == tl.float16)
    tl.static_assert(tl.maximum(q, q).dtype == tl.uint8 and tl.minimum(q, 1 << 40).dtype == tl.int64)
    tl.static_assert(tl.fma(b, b, b).dtype == tl.bfloat16 and tl.clamp(b, b, b).dtype == tl.float32)


def test_numbers_widen_what_is_narrower(launch) -> None:
    h = np.array([0, 1, 2, 0.5], np.float16)
    b = np.array([1, 2, 3, 4], ml_dtypes.bfloat16)
    q = np.array([100, 200, 255, 1], np.uint8)
    got = launch(extrema, (1,), h, b, q, np.zeros(32, np.float32), N=4)[3].reshape(8, 4)
    x, y, n = h.astype(np.float32), b.astype(np.float32), q.astype(np.int32)
    exact = [1 / np.maximum(x, np.float32(1e-8)), n * 3, np.minimum(n, 100) - 101, y + 0.001, x.clip(0, 1) * 0.3333]
    exact += [x * 60000 + 0.5, np.maximum(x, y) * 60000, np.full(4, 299)]
    np.testing.assert_allclose(got, np.float32(exact), rtol=1e-6)


@triton.jit
def compared(h_ptr, b_ptr, q_ptr, i_ptr, o_ptr, N: tl.constexpr, TENTH: tl.constexpr):
    at = tl.arange(0, N)
    h, b, q, i = tl.load(h_ptr + at), tl.load(b_ptr + at), tl.load(q_ptr + at), tl.load(i_ptr + at)
    tl.store(o_ptr + at, h < 1e-8)
    tl.store(o_ptr + N + at, TENTH == h)  # noqa: SIM300 -- the number on the left
    tl.store(o_ptr + 2 * N + at, h < 1e5)
    tl.store(o_ptr + 3 * N + at, b < 257)
    tl.store(o_ptr + 4 * N + at, 65520.0 <= h)  # noqa: SIM300 -- the number on the left
    tl.store(o_ptr + 5 * N + at, q == -1)
    tl.store(o_ptr + 6 * N + at, 256 > q)  # noqa: SIM300 -- the number on the left
    tl.store(o_ptr + 7 * N + at, i < 2**40)
    tl.store(o_ptr + 8 * N + at, i.to(tl.uint32) == -1)
    tl.store(o_ptr + 9 * N + at, (i > -1) & (i < 3000000000))
    count = 7
    if count < 2**40:
        tl.store(o_ptr + 10 * N + at, i != -3000000000)


def test_numbers_are_compared_as_tensors(launch) -> None:
    h = np.array([0, 0.1, 65504, np.inf], np.float16)
    b = np.array([1, 256, 258, 4], ml_dtypes.bfloat16)
    q, i = np.array([0, 255, 3, 4], np.uint8), np.array([1, -1, 127, -(2**31)], np.int32)
    got = launch(compared, (1,), h, b, q, i, np.zeros(44, np.int32), N=4, TENTH=0.1)[4].reshape(11, 4)
    x, y = h.astype(np.float64), b.astype(np.float64)
    # Beside a number that only uint32 holds, signed integers are unsigned.
    above, unsigned = i.astype(np.int32) > -1, i.astype(np.uint32)
    expected = [x < 1e-8, x == 0.1, x < 1e5, y < 257, x >= 65520, q < 0, q < 256, i < 2**40, unsigned == 2**32 - 1]
    expected += [above & (unsigned < 3000000000), i != -3000000000]
    np.testing.assert_array_equal(got, np.array(expected, np.int32))


@triton.jit
def masked(x_ptr, o_ptr, n):
    i = tl.arange(0, 8)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=(i < n) & (i < 6), other=0.0), mask=i.to(tl.int64) < 7)


def test_masks_stay_as_narrow_as_their_offsets() -> None:
    """Where a number fits the type of what it is compared with, nothing is converted."""
    x = np.ones(8, np.float32)
    text = str(masked[(1,)](x, x.copy(), 4).asm["tile"])
    assert text.count("cast") == 1, text  # of the offsets, by the kernel itself
