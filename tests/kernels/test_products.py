"""Matrix products: ragged, batched, int8, split along K, persistent, of rank 3."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import TypeMismatch


@triton.jit
def bmm(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_ab,
    stride_am,
    stride_ak,
    stride_bb,
    stride_bk,
    stride_bn,
    stride_cb,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OUT: tl.constexpr = tl.float32,
    ALLOW_TF32: tl.constexpr = False,
):
    pid_m, pid_n, pid_b = (tl.program_id(0), tl.program_id(1), tl.program_id(2))
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + pid_b * stride_ab + rm[:, None] * stride_am + rk[None, :] * stride_ak
    b_ptrs = b_ptr + pid_b * stride_bb + rk[:, None] * stride_bk + rn[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=(rm[:, None] < M) & (rk[None, :] < K - k * BLOCK_K), other=0.0)
        b = tl.load(b_ptrs, mask=(rk[:, None] < K - k * BLOCK_K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b, allow_tf32=ALLOW_TF32)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    tl.store(
        c_ptr + pid_b * stride_cb + rm[:, None] * stride_cm + rn[None, :] * stride_cn,
        acc.to(OUT),
        mask=(rm[:, None] < M) & (rn[None, :] < N),
    )


@triton.jit
def int8_mm(a_ptr, b_ptr, c_ptr, s_a, s_b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    npn = tl.cdiv(N, BN)
    pm = pid // npn
    pn = pid % npn
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=rk[None, :] < K, other=0)
        b = tl.load(b_ptr + rn[None, :] * K + rk[:, None], mask=rk[:, None] < K, other=0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    sa = tl.load(s_a + rm)[:, None]
    sb = tl.load(s_b + rn)[None, :]
    out = acc.to(tl.float32) * sa * sb
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], out)


@triton.jit
def splitk(
    A,
    B,
    C,
    M,
    N,
    K,
    sam,
    sak,
    sbk,
    sbn,
    scm,
    scn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT_K: tl.constexpr,
    EVEN_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    pid = tl.program_id(0)
    pid_z = tl.program_id(1)
    grid_m = tl.cdiv(M, BM)
    grid_n = tl.cdiv(N, BN)
    width = GROUP_M * grid_n
    group_id = pid // width
    group_size = min(grid_m - group_id * GROUP_M, GROUP_M)
    pid_m = group_id * GROUP_M + pid % group_size
    pid_n = pid % width // group_size
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    ram = tl.max_contiguous(tl.multiple_of(rm % M, BM), BM)
    rbn = tl.max_contiguous(tl.multiple_of(rn % N, BN), BN)
    rk = pid_z * BK + tl.arange(0, BK)
    A = A + (ram[:, None] * sam + rk[None, :] * sak)
    B = B + (rk[:, None] * sbk + rbn[None, :] * sbn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK * SPLIT_K)):
        if EVEN_K:
            a = tl.load(A)
            b = tl.load(B)
        else:
            k_remaining = K - k * (BK * SPLIT_K)
            _0 = tl.zeros((1, 1), dtype=C.dtype.element_ty)
            a = tl.load(A, mask=rk[None, :] < k_remaining, other=_0)
            b = tl.load(B, mask=rk[:, None] < k_remaining, other=_0)
        acc += tl.dot(a, b, out_dtype=tl.float32)
        A += BK * SPLIT_K * sak
        B += BK * SPLIT_K * sbk
    acc = acc.to(C.dtype.element_ty)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    C = C + (rm[:, None] * scm + rn[None, :] * scn)
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    if SPLIT_K == 1:
        tl.store(C, acc, mask=mask)
    else:
        tl.atomic_add(C, acc, mask=mask)


@triton.jit
def _compute_pid(tile_id, num_pid_in_group, num_pid_m, GROUP: tl.constexpr, NUM_SMS: tl.constexpr):
    group_id = tile_id // num_pid_in_group
    first_pid_m = group_id * GROUP
    group_size_m = min(num_pid_m - first_pid_m, GROUP)
    pid_m = first_pid_m + tile_id % group_size_m
    pid_n = tile_id % num_pid_in_group // group_size_m
    return (pid_m, pid_n)


@triton.jit
def persistent(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    NUM_SMS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    start_pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BM)
    num_pid_n = tl.cdiv(N, BN)
    k_tiles = tl.cdiv(K, BK)
    num_tiles = num_pid_m * num_pid_n
    tile_id_c = start_pid - NUM_SMS
    offs_k = tl.arange(0, BK)
    num_pid_in_group = GROUP * num_pid_n
    for tile_id in tl.range(start_pid, num_tiles, NUM_SMS, flatten=True):
        pid_m, pid_n = _compute_pid(tile_id, num_pid_in_group, num_pid_m, GROUP, NUM_SMS)
        start_m = pid_m * BM
        start_n = pid_n * BN
        offs_am = start_m + tl.arange(0, BM)
        offs_bn = start_n + tl.arange(0, BN)
        offs_am = tl.where(offs_am < M, offs_am, 0)
        offs_bn = tl.where(offs_bn < N, offs_bn, 0)
        offs_am = tl.max_contiguous(tl.multiple_of(offs_am, BM), BM)
        offs_bn = tl.max_contiguous(tl.multiple_of(offs_bn, BN), BN)
        accumulator = tl.zeros((BM, BN), dtype=tl.float32)
        for ki in range(k_tiles):
            kk = ki * BK + tl.arange(0, BK)
            a = tl.load(
                a_ptr + offs_am[:, None] * K + kk[None, :],
                mask=offs_k[None, :] < K - ki * BK,
                other=0.0,
            )
            b = tl.load(
                b_ptr + kk[:, None] * N + offs_bn[None, :],
                mask=offs_k[:, None] < K - ki * BK,
                other=0.0,
            )
            accumulator = tl.dot(a, b, accumulator)
        tile_id_c += NUM_SMS
        pid_m, pid_n = _compute_pid(tile_id_c, num_pid_in_group, num_pid_m, GROUP, NUM_SMS)
        cm = pid_m * BM + tl.arange(0, BM)
        cn = pid_n * BN + tl.arange(0, BN)
        if c_ptr.dtype.element_ty == tl.float8e4nv:
            c = accumulator.to(tl.float8e4nv)
        else:
            c = accumulator.to(tl.float16)
        tl.store(c_ptr + cm[:, None] * N + cn[None, :], c, mask=(cm[:, None] < M) & (cn[None, :] < N))


@triton.jit
def batched(a_ptr, b_ptr, o_ptr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    ob = tl.arange(0, B)[:, None, None]
    a = tl.load(a_ptr + ob * M * K + tl.arange(0, M)[None, :, None] * K + tl.arange(0, K)[None, None, :])
    b = tl.load(b_ptr + ob * N * K + tl.arange(0, N)[None, :, None] * K + tl.arange(0, K)[None, None, :])
    c = tl.dot(a, tl.permute(b, (0, 2, 1)))
    tl.store(o_ptr + ob * M * N + tl.arange(0, M)[None, :, None] * N + tl.arange(0, N)[None, None, :], c)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float16, 1e-3)])
def test_batched_ragged(launch, normal, close, dtype, tolerance) -> None:
    b, m, n, k = 2, 19, 33, 45
    x, y = normal(b, m, k).astype(dtype), normal(b, k, n).astype(dtype)
    sizes = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16}
    strides = (m * k, k, 1, k * n, n, 1, m * n, n, 1)

    def grid(meta):
        return triton.cdiv(m, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"]), b

    zeros = np.zeros((b, m, n), np.float32)
    done = launch(bmm, grid, x, y, zeros, m, n, k, *strides, **sizes)
    close(done[2], x.astype(np.float64) @ y.astype(np.float64), tolerance)


def test_int8_with_scales(launch, rng, normal, close) -> None:
    m, n, k = 32, 64, 100
    a, b = (rng.integers(-128, 128, (rows, k)).astype(np.int8) for rows in (m, n))
    s, t = abs(normal(m)), abs(normal(n))
    exact = (a.astype(np.int64) @ b.T.astype(np.int64)) * np.outer(s, t).astype(np.float64)
    zeros = np.zeros((m, n), np.float32)
    done = launch(int8_mm, (2,), a, b, zeros, s, t, m, n, k, BM=32, BN=32, BK=32)
    np.testing.assert_allclose(done[2], exact, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "k"), [(np.float16, 128), (np.float32, 100)])
def test_split_along_k(launch, normal, close, dtype, k) -> None:
    m, n = 40, 32
    a, b = normal(m, k).astype(dtype), normal(k, n).astype(dtype)
    sizes = {"BM": 32, "BN": 32, "BK": 32, "SPLIT_K": 2, "GROUP_M": 8, "EVEN_K": k % 64 == 0}
    arguments = a, b, np.zeros((m, n), np.float32), m, n, k, k, 1, n, 1, n, 1
    close(launch(splitk, (2, 2), *arguments, **sizes)[2], a.astype(np.float64) @ b, 2e-2)


def test_persistent(launch, normal, close) -> None:
    m, n, k = 70, 40, 50
    a, b = normal(m, k).astype(np.float16), normal(k, n).astype(np.float16)
    sizes = {"NUM_SMS": 3, "BM": 32, "BN": 16, "BK": 16, "GROUP": 2}
    done = launch(persistent, (3,), a, b, np.zeros((m, n), np.float16), m, n, k, **sizes)
    close(done[2], a.astype(np.float64) @ b.astype(np.float64), 2e-2)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 1e-3), (np.float64, 1e-14)])
def test_tiles_of_rank_3(launch, normal, close, dtype, tolerance) -> None:
    a, b = normal(4, 16, 16).astype(dtype), normal(4, 32, 16).astype(dtype)
    zeros = np.zeros((4, 16, 32), np.promote_types(dtype, np.float32))
    _, _, got = launch(batched, (1,), a, b, zeros, B=4, M=16, N=32, K=16)
    close(got, a.astype(np.float64) @ b.astype(np.float64).transpose(0, 2, 1), tolerance)


@triton.jit
def batches(a_ptr, b_ptr, c_ptr, o_ptr, A: tl.constexpr, B: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, A)[:, None, None, None] * B + tl.arange(0, B)[None, :, None, None]
    o = (o * N + tl.arange(0, N)[None, None, :, None]) * N + tl.arange(0, N)[None, None, None, :]
    made = tl.dot(tl.load(a_ptr + o), tl.load(b_ptr + o), tl.load(c_ptr + o))
    tl.store(o_ptr + o, tl.dot(made.to(tl.float16), tl.load(b_ptr + o)))


def test_tiles_of_rank_4(launch, normal, close) -> None:
    a, b = normal(2, 4, 16, 16).astype(np.float16), normal(2, 4, 16, 16).astype(np.float16)
    c = normal(2, 4, 16, 16)
    got = launch(batches, (1,), a, b, c, np.zeros_like(c), A=2, B=4, N=16)[3]
    first = (a.astype(np.float64) @ b.astype(np.float64) + c).astype(np.float16)
    close(got, first.astype(np.float64) @ b.astype(np.float64), 2e-2)


@triton.jit
def wrong_batches(x):
    i = tl.arange(0, 16)
    v = tl.load(x + tl.zeros((2, 2, 16, 16), tl.int32) + i[:, None] * 16 + i[None, :])
    tl.store(x, tl.sum(tl.dot(v, v, tl.zeros((4, 16, 16), tl.float32))))


def test_an_accumulator_of_other_batches_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="the accumulator is"):
        triton.compile(wrong_batches, {"x": "*fp32"})
