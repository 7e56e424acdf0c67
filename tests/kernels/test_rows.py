"""Rows: losses, softmax in one pass, largest elements, searches, scans and reductions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl


@triton.jit
def cross_entropy(
    logits_ptr,
    target_ptr,
    loss_ptr,
    stride,
    n_cols,
    ignore_index,
    label_smoothing: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    y = tl.load(target_ptr + pid)
    logits_ptr += pid * stride
    if y == ignore_index:
        for i in range(0, n_cols, BLOCK):
            o = i + tl.arange(0, BLOCK)
            tl.store(logits_ptr + o, 0.0, mask=o < n_cols)
        return
    m = float("-inf")
    d = 0.0
    ori = tl.load(logits_ptr + y).to(tl.float32)
    scaled = 0.0
    eps = label_smoothing / n_cols
    for i in range(0, n_cols, BLOCK):
        o = i + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + o, mask=o < n_cols, other=float("-inf")).to(tl.float32)
        bm = tl.max(x)
        if label_smoothing > 0:
            scaled += tl.sum(tl.where(o < n_cols, -eps * x, 0.0))
        m_new = tl.maximum(m, bm)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    lse = m + tl.log(d)
    for i in range(0, n_cols, BLOCK):
        o = i + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + o, mask=o < n_cols, other=float("-inf")).to(tl.float32)
        g = tl.exp(x - m) / d - eps
        g = tl.where(o != y, g, g - (1 - label_smoothing))
        tl.store(logits_ptr + o, g, mask=o < n_cols)
    tl.debug_barrier()
    loss = lse - ori
    if label_smoothing > 0:
        smooth = scaled + label_smoothing * lse
        loss = loss * (1 - label_smoothing) + smooth
    tl.store(loss_ptr + pid, loss)


@triton.jit
def softmax_online(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr = x_ptr + row * n
    m = -float("inf")
    s = 0.0
    i = 0
    while i < n:
        o = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o, mask=o < n, other=-float("inf"))
        new = tl.maximum(m, tl.max(x, 0))
        s = s * tl.exp(m - new) + tl.sum(tl.exp(x - new), 0)
        m = new
        i += BLOCK
    i = 0
    while i < n:
        o = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o, mask=o < n, other=-float("inf"))
        tl.store(y_ptr + row * n + o, tl.exp(x - m) / s, mask=o < n)
        i += BLOCK


@triton.jit
def top1(x_ptr, val_ptr, idx_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + o, mask=o < n, other=-float("inf"))
    v, i = tl.max(x, axis=0, return_indices=True)
    tl.store(val_ptr + row, v)
    tl.store(idx_ptr + row, i)
    j = tl.argmin(tl.where(o < n, x, float("inf")), axis=0)
    tl.store(idx_ptr + row + tl.num_programs(0), j)


@triton.jit
def topk_loop(x_ptr, v_ptr, i_ptr, n, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + o, mask=o < n, other=-float("inf")).to(tl.float32)
    for k in tl.static_range(K):
        m = tl.max(x, 0)
        i = tl.argmax(x, 0)
        tl.store(v_ptr + row * K + k, m)
        tl.store(i_ptr + row * K + k, i.to(tl.int64))
        x = tl.where(o == i, float("-inf"), x)


@triton.jit
def bsearch(keys_ptr, q_ptr, o_ptr, n, nq, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(q_ptr + o, mask=o < nq, other=0)
    lo = tl.zeros((BLOCK,), tl.int32)
    hi = tl.full((BLOCK,), n, tl.int32)
    while tl.max((lo < hi).to(tl.int32), 0) > 0:
        mid = (lo + hi) // 2
        k = tl.load(keys_ptr + mid, mask=lo < hi, other=0)
        go = (k < q) & (lo < hi)
        lo = tl.where(go, mid + 1, lo)
        hi = tl.where(go, hi, tl.where(lo < hi, mid, hi))
    tl.store(o_ptr + o, lo, mask=o < nq)


@triton.jit
def bsearch1(keys_ptr, q_ptr, o_ptr, n):
    i = tl.program_id(0)
    q = tl.load(q_ptr + i)
    lo = 0
    hi = n
    while lo < hi:
        mid = lo + hi >> 1
        if tl.load(keys_ptr + mid) < q:
            lo = mid + 1
        else:
            hi = mid
    tl.store(o_ptr + i, lo)


@triton.jit
def combine_seg(v1, f1, v2, f2):
    return (tl.where(f2, v2, v1 + v2), f1 | f2)


@triton.jit
def segscan(x_ptr, f_ptr, o_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    f = tl.load(f_ptr + o, mask=o < n, other=0).to(tl.int1)
    v, _ = tl.associative_scan((x, f), 0, combine_seg)
    tl.store(o_ptr + o, v, mask=o < n)


@triton.jit
def add_fn(a, b):
    return a + b


@triton.jit
def rec(a1, b1, a2, b2):
    return (a1 * a2, a2 * b1 + b2)


@triton.jit
def scans(x_ptr, o_ptr, M, N: tl.constexpr, BM: tl.constexpr, AXIS: tl.constexpr, REV: tl.constexpr):
    r = tl.arange(0, BM)[:, None]
    c = tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + r * N + c, mask=r < M, other=0)
    y = tl.cumsum(x, axis=AXIS, reverse=REV)
    z = tl.associative_scan(x, AXIS, add_fn, reverse=REV)
    a, b = tl.associative_scan((tl.sigmoid(x), x), AXIS, rec)
    tl.store(o_ptr + r * N + c, y, mask=r < M)
    tl.store(o_ptr + M * N + r * N + c, z, mask=r < M)
    tl.store(o_ptr + 2 * M * N + r * N + c, b, mask=r < M)


@triton.jit
def reds(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(o_ptr, tl.sum(x))
    tl.store(o_ptr + 1, tl.max(x))
    tl.store(o_ptr + 2, tl.min(x, axis=None))
    mx = tl.max(x, axis=1, keep_dims=True)
    tl.store(o_ptr + 3, tl.sum(tl.exp(x - mx)))
    tl.store(o_ptr + 4 + tl.arange(0, N), tl.argmax(x, axis=0))
    tl.store(o_ptr + 4 + N + tl.arange(0, M), tl.sum(x > 0, axis=1))
    s = tl.softmax(x, dim=1)
    tl.store(o_ptr + 4 + N + M + tl.arange(0, M), tl.max(s, 1))
    y = tl.reshape(x, (M // 2, 2, N))
    tl.store(
        o_ptr + 4 + N + 2 * M + tl.arange(0, M // 2)[:, None] * N + tl.arange(0, N)[None, :],
        tl.sum(y, axis=1),
    )
    c = tl.cat(tl.arange(0, M), tl.arange(0, M), can_reorder=True)
    tl.store(o_ptr + 4 + N + 2 * M + M // 2 * N, tl.sum(c))


@triton.jit
def tiny(x_ptr, o_ptr, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(x_ptr + o)
    tl.store(o_ptr, tl.sum(x))
    tl.store(o_ptr + 1 + o, tl.cumsum(x))
    tl.store(o_ptr + 1 + B + o, tl.sum(x[:, None] * x[None, :], 1))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_and_its_gradient(launch, normal, close, smoothing) -> None:
    x, target = normal(5, 77), np.array([3, 0, -100, 76, 12])
    exact, rows, ignored = x.astype(np.float64), np.arange(5), target < 0
    lse = np.log(np.exp(exact).sum(1))
    loss = (lse - exact[rows, target * ~ignored]) * (1 - smoothing)
    loss += smoothing * (lse - exact.mean(1))
    gradient = np.exp(exact - lse[:, None]) - smoothing / 77
    gradient[rows, target * ~ignored] -= 1 - smoothing
    loss[ignored], gradient[ignored] = 0, 0
    arguments = x, target, np.zeros(5, np.float32), 77, 77, -100
    done = launch(cross_entropy, (5,), *arguments, label_smoothing=smoothing, BLOCK=32)
    close(done[0], gradient)
    close(done[2], loss)


def test_softmax_by_while_loops(launch, normal, close) -> None:
    x = normal(3, 200)
    p = np.exp(x.astype(np.float64))
    got = launch(softmax_online, (3,), x, np.zeros_like(x), 200, BLOCK=64)[1]
    close(got, p / p.sum(1, keepdims=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_largest_elements(launch, normal, dtype) -> None:
    x = normal(3, 50).astype(dtype)
    _, value, index, _ = launch(top1, (3,), x, np.zeros(3, dtype), np.zeros(6, np.int32), 50, BLOCK=64)
    np.testing.assert_array_equal(value, x.max(1))
    np.testing.assert_array_equal(index, np.r_[x.argmax(1), x.argmin(1)])
    best = np.argsort(-x.astype(np.float64), 1, kind="stable")[:, :3]
    zeros = np.zeros((3, 3), dtype), np.zeros((3, 3), np.int64)
    _, values, indices, _ = launch(topk_loop, (3,), x, *zeros, 50, BLOCK=64, K=3)
    np.testing.assert_array_equal(indices, best)
    np.testing.assert_array_equal(values, np.take_along_axis(x, best, 1))


@triton.jit
def extrema(x_ptr, at_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, LEFT: tl.constexpr):
    KEPT: tl.constexpr = N if AXIS == 0 else M
    kept = tl.arange(0, KEPT)
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    most, at = tl.max(x, AXIS, return_indices=True, return_indices_tie_break_left=LEFT)
    tl.store(at_ptr + kept, at)
    tl.store(at_ptr + KEPT + kept, tl.argmin(x, AXIS, tie_break_left=LEFT))
    tl.store(o_ptr + kept, most)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("shape", "warps", "left"), [((2, 1024), 1, True), ((64, 32), 4, False), ((256, 4), 2, True)])
def test_extrema_among_nans_and_equal_numbers(launch, rng, axis, shape, warps, left) -> None:
    """The first of equal numbers, of which the zeros are two; NaN where there is nothing else."""
    x = rng.choice(np.array([np.nan, -0.0, 0.0, -1, 1, np.inf, -np.inf], np.float32), shape)
    x[np.abs(x) > 1] = np.nan if axis else 0.0
    x[:, 0] = np.nan
    x[0] = np.nan
    kept = shape[1 - axis]
    at, most = np.full((2, kept), -1, np.int32), np.zeros(kept, np.float32)
    sizes = dict(zip("MN", shape, strict=True))
    _, at, most = launch(extrema, (1,), x, at, most, **sizes, AXIS=axis, LEFT=left, num_warps=warps)
    for found, sign in zip(at, (1, -1), strict=True):
        order = np.where(np.isnan(x), -np.inf, sign * x)
        numbers = np.where(np.isnan(x), False, order == order.max(axis, keepdims=True))
        np.testing.assert_array_equal(found, numbers.argmax(axis))
    wanted = np.take_along_axis(x, np.expand_dims(at[0], axis), axis).reshape(kept)
    np.testing.assert_array_equal(most, wanted)
    np.testing.assert_array_equal(np.signbit(most)[wanted == 0], np.signbit(wanted)[wanted == 0])


@triton.jit
def extreme_of_all(x_ptr, at_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    most, at = tl.max(x, return_indices=True, keep_dims=True)
    tl.static_assert(len(most.shape) == 2 and len(at.shape) == 2)
    zero = tl.arange(0, 1)[:, None]
    tl.store(o_ptr + zero, most)
    tl.store(at_ptr + zero, at)


def test_the_extreme_of_all_axes_keeps_them(launch, normal) -> None:
    x = normal(8, 16)
    _, at, most = launch(extreme_of_all, (1,), x, np.zeros(1, np.int32), np.zeros(1, np.float32), M=8, N=16)
    assert (most.item(), at.item()) == (x.max(), x.argmax())


def test_binary_search(launch, rng) -> None:
    keys = np.sort(rng.integers(0, 100, 37)).astype(np.int32)
    queries, zeros = rng.integers(0, 100, 50).astype(np.int32), np.zeros(50, np.int32)
    exact = np.searchsorted(keys, queries)
    got = launch(bsearch, (2,), keys, queries, zeros, 37, 50, BLOCK=32)[2]
    np.testing.assert_array_equal(got, exact)
    np.testing.assert_array_equal(launch(bsearch1, (50,), keys, queries, zeros, 37)[2], exact)


def test_segmented_scan(launch, rng, normal, close) -> None:
    x, starts = normal(200), rng.random(200) < 0.1
    exact, total = [], 0.0
    for value, start in zip(x.astype(np.float64), starts, strict=True):
        total = value if start else total + value
        exact.append(total)
    got = launch(segscan, (1,), x, starts, np.zeros(200, np.float32), 200, BLOCK=256)[2]
    close(got, np.array(exact), 1e-4)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(launch, normal, close, axis, reverse) -> None:
    x = normal(8, 64)
    exact = x.astype(np.float64)
    order = (lambda v: np.flip(v, axis)) if reverse else (lambda v: v)
    sums = order(np.cumsum(order(exact), axis))
    state = np.zeros_like(exact)
    gates, inputs, states = (np.moveaxis(v, axis, 0) for v in (1 / (1 + np.exp(-exact)), exact, state))
    for i in range(len(states)):
        states[i] = gates[i] * (states[i - 1] if i else 0) + inputs[i]
    zeros = np.zeros((3, 8, 64), np.float32)
    got = launch(scans, (1,), x, zeros, 8, N=64, BM=8, AXIS=axis, REV=reverse)[1]
    close(got, np.stack([sums, sums, state]), 1e-4)


def test_reductions(launch, normal, close) -> None:
    m, n = 16, 32
    x = normal(m, n)
    exact = x.astype(np.float64)
    e = np.exp(exact - exact.max(1, keepdims=True))
    parts = [exact.sum(), exact.max(), exact.min(), e.sum(), exact.argmax(0), (exact > 0).sum(1)]
    parts += [(e / e.sum(1, keepdims=True)).max(1), exact.reshape(8, 2, n).sum(1).ravel()]
    expected = np.hstack([*parts, m * (m - 1)])
    got = launch(reds, (1,), x, np.zeros(len(expected), np.float32), M=m, N=n)[1]
    close(got, expected, 1e-4)


@pytest.mark.parametrize("block", [1, 2, 64])
@pytest.mark.parametrize("warps", [1, 2, 32])
def test_more_threads_than_elements(launch, normal, close, block, warps) -> None:
    x = normal(block)
    exact = x.astype(np.float64)
    expected = np.r_[exact.sum(), np.cumsum(exact), exact * exact.sum()]
    zeros = np.zeros(1 + 2 * block, np.float32)
    close(launch(tiny, (1,), x, zeros, num_warps=warps, B=block)[1], expected, 1e-4)
