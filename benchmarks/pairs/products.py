"""Products of matrices: orders and precisions, sizes that no tile divides, many small ones, and vectors."""

from __future__ import annotations

from collections.abc import Callable

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv, columns, tiles


@triton.jit
def mm_strided(
    a,
    b,
    c,
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
    PREC: tl.constexpr,
    ACC: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    ap = a + m[:, None] * sam + k[None, :] * sak
    bp = b + k[:, None] * sbk + n[None, :] * sbn
    acc = tl.zeros((BM, BN), ACC)
    for s in range(tl.cdiv(K, BK)):
        left = K - s * BK
        x = tl.load(ap, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        y = tl.load(bp, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PREC, out_dtype=ACC)
        ap += BK * sak
        bp += BK * sbk
    tl.store(
        c + m[:, None] * scm + n[None, :] * scn, acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def split_k(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(tl.cdiv(K, BK * SPLIT)):
        kk = k + s * BK * SPLIT
        x = tl.load(a + m[:, None] * K + kk[None, :], mask=(m[:, None] < M) & (kk[None, :] < K), other=0.0)
        y = tl.load(b + kk[:, None] * N + n[None, :], mask=kk[:, None] < K, other=0.0)
        acc = tl.dot(x, y, acc)
    tl.atomic_add(c + m[:, None] * N + n[None, :], acc, mask=m[:, None] < M)


@triton.jit
def grouped_mm(a, b, c, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The order of Triton's tutorial; rows and columns wrap, for N is no multiple of a tile."""
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * columns) * GROUP
    size = min(rows - first, GROUP)
    pid_m, pid_n = first + pid % (GROUP * columns) % size, pid % (GROUP * columns) // size
    m, n, k = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    ap, bp = a + (m % M)[:, None] * K + k[None, :], b + k[:, None] * N + (n % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(tl.cdiv(K, BK)):
        x = tl.load(ap, mask=k[None, :] < K - s * BK, other=0.0)
        y = tl.load(bp, mask=k[:, None] < K - s * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        ap += BK
        bp += BK * N
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def bmm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    z = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a += z * M * K
    b += z * K * N
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + (s + k)[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + z * M * N + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def dot_3d(a, b, c, Z: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    z = tl.arange(0, Z)[:, None, None]
    p = tl.program_id(0)
    x = tl.load(a + p * Z * M * K + z * M * K + tl.arange(0, M)[None, :, None] * K + tl.arange(0, K)[None, None, :])
    y = tl.load(b + p * Z * K * N + z * K * N + tl.arange(0, K)[None, :, None] * N + tl.arange(0, N)[None, None, :])
    tl.store(
        c + p * Z * M * N + z * M * N + tl.arange(0, M)[None, :, None] * N + tl.arange(0, N)[None, None, :],
        tl.dot(x, y).to(tl.float16),
    )


@triton.jit
def gram(x, c, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """x^T x of tall x: both operands from one array, accumulated over rows."""
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    r = tl.arange(0, BM)
    acc = tl.zeros((BN, BN), tl.float32)
    for s in range(0, M, BM):
        u = tl.load(x + (s + r)[:, None] * N + i[None, :])
        v = tl.load(x + (s + r)[:, None] * N + j[None, :])
        acc = tl.dot(tl.trans(u), v, acc)
    tl.store(c + i[:, None] * N + j[None, :], acc)


@triton.jit
def gemv(a, x, y, N, K, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BN,), tl.float32)
    for s in range(0, K, BK):
        w = tl.load(a + n[:, None] * K + (s + k)[None, :], mask=n[:, None] < N, other=0.0)
        v = tl.load(x + s + k)
        acc += tl.sum(w.to(tl.float32) * v[None, :].to(tl.float32), 1)
    tl.store(y + n, acc.to(tl.float16), mask=n < N)


@triton.jit
def gemv_split(a, x, y, N, K, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BN, BK), tl.float32)
    for s in range(0, K, BK):
        kk = s + k
        w = tl.load(a + n[:, None] * K + kk[None, :], mask=(n[:, None] < N) & (kk[None, :] < K), other=0.0)
        v = tl.load(x + kk, mask=kk < K, other=0.0)
        acc += w.to(tl.float32) * v[None, :].to(tl.float32)
    tl.store(y + n, tl.sum(acc, 1).to(tl.float16), mask=n < N)


@triton.jit
def f64_gemv(a, x, y, N, K, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN, BK), tl.float64)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        acc += tl.load(a + n[:, None] * K + k[None, :]) * tl.load(x + k)[None, :]
    tl.store(y + n, tl.sum(acc, 1))


TILE = {"BM": 128, "BN": 128, "BK": 64, "PREC": "tf32", "ACC": tl.float32}
TILE_F32 = TILE | {"BK": 32}
HALF_SUMS = TILE | {"ACC": tl.float16}


def wrapped(arrays: Arrays) -> Arguments:
    m, n, k = 4096, 5152, 4096
    a, b = arrays.normal("bf16", m, k), arrays.normal("bf16", k, n)
    return {"a": a, "b": b, "c": arrays.zeros("bf16", m, n), "M": m, "N": n, "K": k}


def strided(kind: str, order: str, m: int, n: int, k: int) -> Callable[[Arrays], Arguments]:
    """Two matrices, each row by row ("n") or column by column ("t")."""

    def arguments(arrays: Arrays) -> Arguments:
        a = arrays.normal(kind, *((m, k) if order[0] == "n" else (k, m)))
        b = arrays.normal(kind, *((k, n) if order[1] == "n" else (n, k)))
        sam, sak = (k, 1) if order[0] == "n" else (1, m)
        sbk, sbn = (n, 1) if order[1] == "n" else (1, k)
        strides = {"sam": sam, "sak": sak, "sbk": sbk, "sbn": sbn, "scm": n, "scn": 1}
        return {"a": a, "b": b, "c": arrays.zeros(kind, m, n), "M": m, "N": n, "K": k, **strides}

    return arguments


def decoding(arrays: Arrays) -> Arguments:
    a, b = arrays.normal("fp16", 16, 8192, scale=0.5), arrays.normal("fp16", 8192, 4096, scale=0.5)
    return {"a": a, "b": b, "c": arrays.zeros("fp32", 16, 4096), "M": 16, "N": 4096, "K": 8192}


def batched(arrays: Arrays) -> Arguments:
    batch, m, n, k = 64, 512, 512, 128
    a, b = arrays.normal("bf16", batch, m, k), arrays.normal("bf16", batch, k, n)
    return {"a": a, "b": b, "c": arrays.zeros("bf16", batch, m, n), "M": m, "N": n, "K": k}


def small(arrays: Arrays) -> Arguments:
    shape = (8192, 4, 32, 32)
    a, b = arrays.normal("fp16", *shape), arrays.normal("fp16", *shape)
    return {"a": a, "b": b, "c": arrays.zeros("fp16", *shape)}


def tall(kind: str) -> Callable[[Arrays], Arguments]:
    return lambda arrays: {
        "x": arrays.normal(kind, 16384, 2048),
        "c": arrays.zeros("fp32", 2048, 2048),
        "M": 16384,
        "N": 2048,
    }


def matrix_and_vector(kind: str, result: str, n: int, k: int) -> Callable[[Arrays], Arguments]:
    return lambda arrays: {
        "a": arrays.normal(kind, n, k),
        "x": arrays.normal(kind, k),
        "y": arrays.zeros(result, n),
        "N": n,
        "K": k,
    }


def squares(a: Arguments) -> tuple[int, ...]:
    return (a["N"] // a["BN"],) * 2


VECTOR = matrix_and_vector("fp16", "fp16", 16384, 8192)
CASES = [
    Case("mm_tn_f16", mm_strided, strided("fp16", "tn", 4096, 4096, 4096), tiles, TILE, num_warps=8),
    Case("mm_odd_k_f16", mm_strided, strided("fp16", "nt", 2048, 2048, 2050), tiles, TILE, num_warps=8),
    Case("mm_odd_all_f16", mm_strided, strided("fp16", "nn", 2047, 2049, 2051), tiles, TILE, num_warps=8),
    Case(
        "grouped_mm_odd_n",
        grouped_mm,
        wrapped,
        lambda a: (cdiv(a["M"], a["BM"]) * cdiv(a["N"], a["BN"]),),
        {"GROUP": 8, "BM": 128, "BN": 128, "BK": 64},
        num_warps=8,
    ),
    Case("mm_half_sums", mm_strided, strided("fp16", "nn", 4096, 4096, 4096), tiles, HALF_SUMS, num_warps=8),
    Case("mm_tf32", mm_strided, strided("fp32", "nn", 4096, 4096, 4096), tiles, TILE_F32, num_warps=8),
    Case("mm_tf32_nt", mm_strided, strided("fp32", "nt", 4096, 4096, 4096), tiles, TILE_F32, num_warps=8),
    Case("mm_tf32_tn", mm_strided, strided("fp32", "tn", 4096, 4096, 4096), tiles, TILE_F32, num_warps=8),
    Case(
        "mm_tf32x3",
        mm_strided,
        strided("fp32", "nn", 2048, 2048, 2048),
        tiles,
        TILE_F32 | {"PREC": "tf32x3"},
        num_warps=8,
    ),
    Case(
        "mm_ieee",
        mm_strided,
        strided("fp32", "nn", 2048, 2048, 2048),
        tiles,
        TILE_F32 | {"PREC": "ieee", "BM": 64, "BN": 64},
        num_warps=8,
    ),
    Case(
        "mm_f64",
        mm_strided,
        strided("fp64", "nn", 2048, 2048, 2048),
        tiles,
        {"BM": 64, "BN": 64, "BK": 16, "PREC": "ieee", "ACC": tl.float64},
    ),
    Case(
        "mm_small_tile",
        mm_strided,
        strided("fp16", "nn", 1024, 1024, 1024),
        tiles,
        TILE | {"BM": 32, "BN": 32},
        num_stages=4,
    ),
    Case(
        "split_k",
        split_k,
        decoding,
        lambda a: (*tiles(a), a["SPLIT"]),
        {"BM": 16, "BN": 64, "BK": 128, "SPLIT": 4},
        num_stages=4,
    ),
    Case("bmm", bmm, batched, lambda a: (*tiles(a), a["a"].shape[0]), {"BM": 64, "BN": 64, "BK": 32}),
    Case("dot_3d", dot_3d, small, lambda a: (a["a"].shape[0],), {"Z": 4, "M": 32, "N": 32, "K": 32}),
    Case("gram_f16", gram, tall("fp16"), squares, {"BM": 64, "BN": 128}, num_warps=8),
    Case("gram_f32", gram, tall("fp32"), squares, {"BM": 32, "BN": 128}, num_warps=8),
    Case("gemv", gemv, VECTOR, columns, {"BN": 16, "BK": 256}),
    Case("gemv_one", gemv, VECTOR, columns, {"BN": 4, "BK": 512}),
    Case("gemv_split", gemv_split, VECTOR, columns, {"BN": 16, "BK": 256}),
    Case("f64_gemv", f64_gemv, matrix_and_vector("fp64", "fp64", 16384, 4096), columns, {"BN": 16, "BK": 64}),
]
