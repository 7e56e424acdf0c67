"""Normalisations: one row a program, sums over rows, locks around partial sums, Welford's pairs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl


@triton.jit
def rmsnorm_fwd(x_ptr, w_ptr, y_ptr, rstd_ptr, stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    y_ptr += row * stride
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + cols, mask=mask)
    tl.store(y_ptr + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm_bwd(
    dy_ptr,
    x_ptr,
    w_ptr,
    rstd_ptr,
    dx_ptr,
    dw_ptr,
    stride,
    n_rows,
    n_cols,
    rows_per_program,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0)
    row_start = pid * rows_per_program
    row_end = min((pid + 1) * rows_per_program, n_rows)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(row_start, row_end):
        x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
        r = tl.load(rstd_ptr + row)
        m = dy * w
        dx = r * m
        dx += r * (-(1 / n_cols) * r * r * tl.sum(m * x, axis=0) * x)
        dw += dy * (x * r)
        tl.store(dx_ptr + row * stride + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    tl.store(dw_ptr + pid * stride + cols, dw, mask=mask)


@triton.jit
def ln_bwd_dx(
    DX,
    DY,
    DW,
    DB,
    X,
    W,
    Mean,
    Rstd,
    Lock,
    stride,
    N,
    GROUP_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE_N)
    mask = cols < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    lock_id = row % GROUP_SIZE_M
    Lock += lock_id
    Count = Lock + GROUP_SIZE_M
    DW = DW + lock_id * N + cols
    DB = DB + lock_id * N + cols
    x = tl.load(X + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    mean = tl.load(Mean + row)
    rstd = tl.load(Rstd + row)
    xhat = (x - mean) * rstd
    wdy = w * dy
    xhat = tl.where(mask, xhat, 0.0)
    wdy = tl.where(mask, wdy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    dx = (wdy - (xhat * c1 + c2)) * rstd
    tl.store(DX + cols, dx, mask=mask)
    partial_dw = (dy * xhat).to(w.dtype)
    partial_db = dy.to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(DW, mask=mask)
        partial_db += tl.load(DB, mask=mask)
    tl.store(DW, partial_dw, mask=mask)
    tl.store(DB, partial_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@triton.jit
def lnb_dwdb(DW, FINAL_DW, M, N, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr):
    pid = tl.program_id(0)
    cols = pid * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    dw = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for i in range(0, M, BLOCK_SIZE_M):
        rows = i + tl.arange(0, BLOCK_SIZE_M)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        offs = rows[:, None] * N + cols[None, :]
        dw += tl.load(DW + offs, mask=mask, other=0.0)
    sum_dw = tl.sum(dw, axis=0)
    tl.store(FINAL_DW + cols, sum_dw, mask=cols < N)


@triton.jit
def welford_combine(mean_1, m2_1, w_1, mean_2, m2_2, w_2):
    delta = mean_2 - mean_1
    new_w = w_1 + w_2
    ratio = tl.where(new_w == 0.0, 0.0, w_2 / new_w)
    return (mean_1 + delta * ratio, m2_1 + m2_2 + delta * delta * w_1 * ratio, new_w)


@triton.jit
def welford(x_ptr, mean_ptr, var_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = tl.zeros((BLOCK,), tl.float32)
    m2 = tl.zeros((BLOCK,), tl.float32)
    w = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, n, BLOCK):
        o = i + tl.arange(0, BLOCK)
        m = o < n
        x = tl.load(x_ptr + row * n + o, mask=m, other=0.0)
        nm, nm2, nw = welford_combine(mean, m2, w, x, tl.zeros_like(x), m.to(tl.float32))
        mean, m2, w = (nm, nm2, nw)
    mu, s2, cnt = tl.reduce((mean, m2, w), 0, welford_combine)
    tl.store(mean_ptr + row, mu)
    tl.store(var_ptr + row, s2 / cnt)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2), (np.float32, 1e-5)])
def test_rms_norm(launch, normal, close, dtype, tolerance) -> None:
    x, w = normal(7, 300).astype(dtype), normal(300).astype(dtype)
    exact = x.astype(np.float64)
    rstd = 1 / np.sqrt((exact**2).mean(1) + 1e-6)
    zeros = np.zeros_like(x), np.zeros(7, np.float32)
    *_, y, got, _, _, _ = launch(rmsnorm_fwd, (7,), x, w, *zeros, 300, 300, 1e-6, BLOCK=512)
    close(y, exact * rstd[:, None] * w.astype(np.float64), tolerance)
    close(got, rstd)


def test_rms_norm_backward(launch, normal, close) -> None:
    x, w, dy = normal(7, 100), normal(100), normal(7, 100)
    a, b, c = (v.astype(np.float64) for v in (x, w, dy))
    r = 1 / np.sqrt((a**2).mean(1, keepdims=True) + 1e-6)
    dx = r * c * b - r**3 * (c * b * a).mean(1, keepdims=True) * a
    dw = np.stack([(c * a * r)[i : i + 2].sum(0) for i in range(0, 7, 2)])
    zeros = np.zeros_like(x), np.zeros((4, 100), np.float32)
    rstd = r[:, 0].astype(np.float32)
    done = launch(rmsnorm_bwd, (4,), dy, x, w, rstd, *zeros, 100, 7, 100, 2, BLOCK=128)
    close(done[4], dx, 1e-4)
    close(done[5], dw, 1e-4)


def test_layer_norm_backward_with_locks(launch, normal, close) -> None:
    rows, n, groups = 7, 50, 3
    x, dy, w = normal(rows, n), normal(rows, n), normal(n)
    a, c, b = (v.astype(np.float64) for v in (x, dy, w))
    mean, rstd = a.mean(1, keepdims=True), 1 / np.sqrt(a.var(1, keepdims=True) + 1e-5)
    hat, wdy = (a - mean) * rstd, c * b
    dx = wdy - hat * (hat * wdy).mean(1, keepdims=True) - wdy.mean(1, keepdims=True)
    partial = np.zeros((groups, n), np.float32)
    statistics = mean[:, 0].astype(np.float32), rstd[:, 0].astype(np.float32)
    locks = np.zeros(2 * groups, np.int32)
    arguments = np.zeros_like(x), dy, partial, partial, x, w, *statistics, locks, n, n
    done = launch(ln_bwd_dx, (rows,), *arguments, GROUP_SIZE_M=groups, BLOCK_SIZE_N=64)
    close(done[0], dx * rstd, 1e-4)
    close(done[2], np.stack([(c * hat)[g::groups].sum(0) for g in range(groups)]), 1e-4)
    close(done[3], np.stack([c[g::groups].sum(0) for g in range(groups)]), 1e-4)
    assert done[8].tolist() == [0] * groups + [1] * groups


def test_sum_over_rows(launch, normal, close) -> None:
    x = normal(13, 50)
    sizes = {"BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": 32}
    _, got, _, _ = launch(lnb_dwdb, (2,), x, np.zeros(50, np.float32), 13, 50, **sizes)
    close(got, x.astype(np.float64).sum(0))


def test_welford(launch, normal, close) -> None:
    x = normal(3, 301) + 5
    zeros = np.zeros(3, np.float32)
    _, mean, variance, _ = launch(welford, (3,), x, zeros, zeros, 301, BLOCK=128)
    close(mean, x.astype(np.float64).mean(1))
    close(variance, x.astype(np.float64).var(1), 1e-4)
