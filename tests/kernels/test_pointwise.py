"""Elementwise kernels as libraries have them: gates, rotations, quantisation, an optimiser, dropout."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.language.extra import libdevice


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu(a_ptr, b_ptr, c_ptr, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    a_ptr += pid * stride
    b_ptr += pid * stride
    c_ptr += pid * stride
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    a_row = tl.load(a_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b_ptr + col_offsets, mask=mask, other=0)
    c_row = silu(a_row).cast(b_row.dtype) * b_row
    tl.store(c_ptr + col_offsets, c_row, mask=mask)


@triton.jit
def rope(
    q_ptr,
    q_row_stride,
    cos_ptr,
    sin_ptr,
    sl,
    n_heads: tl.constexpr,
    hd: tl.constexpr,
    pad_h: tl.constexpr,
    BACKWARD: tl.constexpr = False,
):
    pid = tl.program_id(0)
    q_ptr = q_ptr + pid * q_row_stride
    pos = pid % sl
    cos_offsets = tl.arange(0, hd // 2)
    cos_row = tl.load(cos_ptr + pos * (hd // 2) + cos_offsets)
    sin_row = tl.load(sin_ptr + pos * (hd // 2) + cos_offsets)
    first = tl.arange(0, pad_h)[:, None] * hd + tl.arange(0, hd // 2)[None, :]
    m = (tl.arange(0, pad_h)[:, None] < n_heads) & (tl.arange(0, hd // 2)[None, :] < hd // 2)
    q1 = tl.load(q_ptr + first, mask=m, other=0).to(sin_row.dtype)
    second = first + hd // 2
    q2 = tl.load(q_ptr + second, mask=m, other=0).to(sin_row.dtype)
    if not BACKWARD:
        tl.store(q_ptr + first, q1 * cos_row - q2 * sin_row, mask=m)
        tl.store(q_ptr + second, q2 * cos_row + q1 * sin_row, mask=m)
    else:
        tl.store(q_ptr + first, q1 * cos_row + q2 * sin_row, mask=m)
        tl.store(q_ptr + second, q2 * cos_row - q1 * sin_row, mask=m)


@triton.jit
def ropei(x_ptr, c_ptr, s_ptr, o_ptr, D: tl.constexpr):
    pid = tl.program_id(0)
    o = tl.arange(0, D)
    x = tl.load(x_ptr + pid * D + o)
    a, b = tl.split(tl.reshape(x, (D // 2, 2)))
    h = tl.arange(0, D // 2)
    c = tl.load(c_ptr + h)
    s = tl.load(s_ptr + h)
    y = tl.join(a * c - b * s, a * s + b * c)
    tl.store(o_ptr + pid * D + o, tl.ravel(y, can_reorder=True))


@triton.jit
def quant(x_ptr, q_ptr, s_ptr, n, G: tl.constexpr, MAXV: tl.constexpr = 127.0):
    g = tl.program_id(0)
    o = g * G + tl.arange(0, G)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0).to(tl.float32)
    amax = tl.maximum(tl.max(tl.abs(x)), 1e-10)
    s = amax / MAXV
    q = tl.clamp(libdevice.rint(x / s), -MAXV, MAXV).to(q_ptr.dtype.element_ty)
    tl.store(q_ptr + o, q, mask=o < n)
    tl.store(s_ptr + g, s)


@triton.jit
def adamw(p_ptr, g_ptr, m_ptr, v_ptr, lr, b1, b2, eps, wd, step, n, BLOCK: tl.constexpr):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = o < n
    p = tl.load(p_ptr + o, mask=mask)
    g = tl.load(g_ptr + o, mask=mask).to(tl.float32)
    m = tl.load(m_ptr + o, mask=mask)
    v = tl.load(v_ptr + o, mask=mask)
    m = b1 * m + (1 - b1) * g
    v = tl.fma(g * g, 1 - b2, b2 * v)
    mh = m / (1 - libdevice.pow(b1, step.to(tl.float32)))
    vh = v / (1 - libdevice.pow(b2, step.to(tl.float32)))
    p = p * (1 - lr * wd) - lr * mh / (tl.sqrt_rn(vh) + eps)
    tl.store(p_ptr + o, p, mask=mask)
    tl.store(m_ptr + o, m, mask=mask)
    tl.store(v_ptr + o, v, mask=mask)


@triton.jit
def dropout(x_ptr, o_ptr, n, p, seed, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    random = tl.rand(seed, offsets)
    keep = random > p
    tl.store(o_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@triton.jit
def f64k(x_ptr, y_ptr, o_ptr, alpha, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    x = tl.load(x_ptr + o, mask=m, other=0.0)
    y = tl.load(y_ptr + o, mask=m, other=0.0)
    r = x * alpha + tl.exp(y) / tl.sqrt(tl.abs(x) + 1) + tl.log(tl.abs(y) + 1e-30) + tl.sin(x) * tl.cos(y)
    r += libdevice.pow(tl.abs(x), 1.5) + libdevice.tanh(y) + tl.erf(x) + libdevice.log1p(tl.abs(x)) + libdevice.floor(y)
    tl.store(o_ptr + o, r, mask=m)


@triton.jit
def transpose(x, y, M, N, sxm, sxn, sym, syn, B: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * B + tl.arange(0, B)
    rn = pn * B + tl.arange(0, B)
    t = tl.load(x + rm[:, None] * sxm + rn[None, :] * sxn, mask=(rm[:, None] < M) & (rn[None, :] < N))
    tl.store(
        y + rn[:, None] * sym + rm[None, :] * syn,
        tl.trans(t),
        mask=(rn[:, None] < N) & (rm[None, :] < M),
    )


@triton.jit
def mixdt(x_ptr, y_ptr, o_ptr, o8_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o)
    y = tl.load(y_ptr + o)
    s = x + y
    tl.static_assert(s.dtype == tl.float16)
    t = x * 2 + 1
    tl.static_assert(t.dtype == tl.bfloat16)
    u = x / 2
    tl.store(o_ptr + o, s.to(tl.float32) + t.to(tl.float32) + u)
    z = tl.load(o8_ptr + o).to(tl.float32)
    tl.store(o8_ptr + o, (z * 2).to(o8_ptr.dtype.element_ty))


def test_swiglu(launch, normal, close) -> None:
    a, b = normal(3, 100).astype(np.float16), normal(3, 100).astype(np.float16)
    x = a.astype(np.float64)
    done = launch(swiglu, (3,), a, b, np.zeros_like(a), 100, n_cols=100, BLOCK_SIZE=128)
    close(done[2], x / (1 + np.exp(-x)) * b, 3e-3)


def test_rotary_embedding_of_halves(launch, normal, close) -> None:
    q, cos, sin = normal(6, 3, 32).astype(np.float16), normal(3, 16), normal(3, 16)
    a, b = np.split(q.astype(np.float64), 2, -1)
    c, s = (np.tile(v, (2, 1))[:, None].astype(np.float64) for v in (cos, sin))
    got = launch(rope, (6,), q, 96, cos, sin, 3, n_heads=3, hd=32, pad_h=4)[0]
    close(got, np.concatenate([a * c - b * s, b * c + a * s], -1), 4e-3)


def test_rotary_embedding_of_pairs(launch, normal, close) -> None:
    x, c, s = normal(3, 64), normal(32), normal(32)
    a, b = x[:, ::2].astype(np.float64), x[:, 1::2].astype(np.float64)
    got = launch(ropei, (3,), x, c, s, np.zeros_like(x), D=64)[3]
    close(got, np.stack([a * c - b * s, a * s + b * c], -1).reshape(3, 64))


def test_int8_in_groups(launch, normal, close) -> None:
    x = normal(100).astype(np.float16)
    groups = np.pad(x.astype(np.float64), (0, 28)).reshape(4, 32)
    scales = abs(groups).max(1) / 127
    zeros = np.zeros(100, np.int8), np.zeros(4, np.float32)
    _, q, s, _ = launch(quant, (4,), x, *zeros, 100, G=32)
    close(s, scales)
    assert abs(q - (groups / scales[:, None]).ravel()[:100]).max() < 0.501


def test_adam(launch, normal, close) -> None:
    p, g, m, v = normal(200), normal(200).astype(ml_dtypes.bfloat16), normal(200), abs(normal(200))
    a, b, c, d = (t.astype(np.float64) for t in (p, g, m, v))
    first, second = 0.9 * c + 0.1 * b, 0.99 * d + 0.01 * b * b
    step = 0.1 * (first / (1 - 0.9**3)) / (np.sqrt(second / (1 - 0.99**3)) + 1e-8)
    done = launch(adamw, (2,), p, g, m, v, 0.1, 0.9, 0.99, 1e-8, 0.01, 3, 200, BLOCK=128)
    close(done[0], a * (1 - 0.1 * 0.01) - step, 1e-4)
    close(done[2], first)
    close(done[3], second)


def test_dropout_is_the_same_everywhere(launch, normal) -> None:
    x = normal(1000)
    expected = np.zeros_like(x)
    dropout[(4,)](x, expected, 1000, 0.25, 123, BLOCK=256)
    kept = expected != 0
    assert abs(kept.mean() - 0.75) < 0.05
    np.testing.assert_allclose(expected[kept], x[kept] / 0.75, rtol=1e-6)
    got = launch(dropout, (4,), x, np.zeros_like(x), 1000, 0.25, 123, BLOCK=256)[1]
    np.testing.assert_array_equal(got != 0, kept)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-6), (np.float32, 1e-4)])
def test_mathematics(launch, rng, close, dtype, tolerance) -> None:
    x, y = rng.standard_normal(100), rng.standard_normal(100)
    exact = x * 0.1 + np.exp(y) / np.sqrt(abs(x) + 1) + np.log(abs(y) + 1e-30)
    exact += np.sin(x) * np.cos(y) + abs(x) ** 1.5 + np.tanh(y) + np.vectorize(math.erf)(x)
    exact += np.log1p(abs(x)) + np.floor(y)
    arguments = x.astype(dtype), y.astype(dtype), np.zeros(100, dtype), 0.1, 100
    close(launch(f64k, (2,), *arguments, BLOCK=64)[2], exact, tolerance)


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.float64, np.bool_])
def test_transpose(launch, normal, dtype) -> None:
    x = (normal(37, 70) * 10).astype(dtype)
    arguments = x, np.zeros((70, 37), dtype), 37, 70, 70, 1, 37, 1
    np.testing.assert_array_equal(launch(transpose, (2, 3), *arguments, B=32)[1], x.T)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_narrow_floats(launch, normal, close, dtype) -> None:
    x, y = normal(32).astype(ml_dtypes.bfloat16), normal(32).astype(np.float16)
    z = normal(32).astype(dtype)
    rounded = (x * ml_dtypes.bfloat16(2) + ml_dtypes.bfloat16(1)).astype(np.float64)
    done = launch(mixdt, (1,), x, y, np.zeros(32, np.float32), z, BLOCK=32)
    close(done[2], x.astype(np.float64) * 1.5 + y.astype(np.float64) + rounded, 2e-2)
    np.testing.assert_array_equal(done[3], (z.astype(np.float32) * 2).astype(dtype))


@triton.jit
def quantised(x_ptr, y_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    product = tl.load(x_ptr + i) * tl.load(y_ptr + i)
    tl.store(o_ptr + i, libdevice.round(product))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_halves_of_products_are_those_of_the_rounded_product(launch, dtype) -> None:
    """The product is a number of its type by then, also where it could fuse with what rounding to an integer computes,
    and be another half or none."""
    rng = np.random.default_rng(5)
    halves = (rng.integers(-300, 300, 8192) + 0.5).astype(dtype)
    y = rng.uniform(0.5, 2, halves.size).astype(dtype)
    x = halves / y
    wide = np.float64 if dtype == np.float32 else np.longdouble
    uneven = (x * y == halves) & (x.astype(wide) * y.astype(wide) != halves)
    x, y, halves = (side[uneven][:512] for side in (x, y, halves))
    out = launch(quantised, (1,), x, y, np.zeros(512, dtype), N=512)[2]
    np.testing.assert_array_equal(out, halves + np.copysign(0.5, halves))
