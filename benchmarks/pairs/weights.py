"""Products with quantised operands: integers, fp8 with scales of blocks, and weights of 8 and 4 bits."""

from __future__ import annotations

from collections.abc import Callable

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv, columns, tiles


@triton.jit
def int8_mm(a, b, c, sa, sb, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :], mask=(s + k)[None, :] < K, other=0)
        y = tl.load(b + n[None, :] * K + (s + k)[:, None], mask=(s + k)[:, None] < K, other=0)
        acc = tl.dot(x, y, acc, out_dtype=tl.int32)
    out = acc.to(tl.float32) * tl.load(sa + m)[:, None] * tl.load(sb + n)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], out.to(tl.float16))


@triton.jit
def int8_mm_row(a, b, c, sa, sb, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + (s + k)[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc, out_dtype=tl.int32)
    out = acc.to(tl.float32) * tl.load(sa + m)[:, None] * tl.load(sb + n)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], out.to(tl.float16))


@triton.jit
def fp8_block_mm(a, b, c, sa, sb, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    ap = a + m[:, None] * K + k[None, :]
    bp = b + n[None, :] * K + k[:, None]
    nk = tl.cdiv(K, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(nk):
        x = tl.load(ap, mask=k[None, :] < K - s * BK, other=0.0)
        y = tl.load(bp, mask=k[:, None] < K - s * BK, other=0.0)
        xs = tl.load(sa + m * nk + s)
        ys = tl.load(sb + (n // 128) * nk + s)
        acc += tl.dot(x, y) * xs[:, None] * ys[None, :]
        ap += BK
        bp += BK
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def fp8w_mm(a, b, sc, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """bf16 by fp8 weights N by K."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + n[None, :] * K + (s + k)[:, None])
        acc = tl.dot(x, y.to(tl.bfloat16), acc)
    acc = acc * tl.load(sc + n)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def w8_mm(a, b, sc, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + (s + k)[:, None] * N + n[None, :])
        acc = tl.dot(x, y.to(tl.bfloat16), acc)
    acc = acc * tl.load(sc + n)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def w4_mm(a, b, sc, c, M, N, K, G: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Eight 4-bit weights along K in a word, as GPTQ packs them; scales by groups of G."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    ap = a + m[:, None] * K + k[None, :]
    bp = b + (k[:, None] // 8) * N + n[None, :]
    shift = (k % 8) * 4
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(K // BK):
        x = tl.load(ap, mask=m[:, None] < M, other=0.0)
        w = tl.load(bp)
        g = tl.load(sc + (s * BK // G) * N + n)
        w = ((w >> shift[:, None]) & 15) - 8
        acc = tl.dot(x, (w.to(tl.float16) * g[None, :]).to(tl.float16), acc)
        ap += BK
        bp += (BK // 8) * N
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16), mask=m[:, None] < M)


@triton.jit
def w4_zeros_mm(a, b, sc, zeros, c, M, N, K, G, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Eight 4-bit weights along K in a word; scales and packed zero points as whole tiles; rows that wrap."""
    m = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    n = (tl.program_id(1) * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    ap = a + m[:, None] * K + k[None, :]
    bp = b + (k[:, None] // 8) * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(tl.cdiv(K, BK)):
        group = (s * BK + k)[:, None] // G
        scale = tl.load(sc + group * N + n[None, :])
        zero = tl.load(zeros + group * (N // 8) + n[None, :] // 8)
        x = tl.load(ap)
        w = tl.load(bp)
        w = ((w >> (k[:, None] % 8 * 4)) & 15) - ((zero >> (n[None, :] % 8 * 4)) & 15)
        acc += tl.dot(x, (w * scale).to(x.dtype))
        ap += BK
        bp += BK // 8 * N
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


@triton.jit
def w4_join_mm(a, b, sc, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Two 4-bit weights along N in a byte, joined and interleaved."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    nh = tl.program_id(1) * (BN // 2) + tl.arange(0, BN // 2)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        p = tl.load(b + (s + k)[:, None] * (N // 2) + nh[None, :])
        lo = ((p << 4).to(tl.int8) >> 4).to(tl.bfloat16)
        hi = (p.to(tl.int8) >> 4).to(tl.bfloat16)
        w = tl.join(lo, hi).reshape(BK, BN)
        acc = tl.dot(x, w, acc)
    acc = acc * tl.load(sc + n)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def w4_nk_mm(a, b, sc, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Two 4-bit weights along K in a byte; even and odd columns of a are loaded apart."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK // 2)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K // 2, BK // 2):
        kk = s + k
        x0 = tl.load(a + m[:, None] * K + 2 * kk[None, :])
        x1 = tl.load(a + m[:, None] * K + 2 * kk[None, :] + 1)
        p = tl.load(b + n[None, :] * (K // 2) + kk[:, None])
        acc = tl.dot(x0, ((p & 15).to(tl.float16) - 8.0), acc)
        acc = tl.dot(x1, ((p >> 4).to(tl.float16) - 8.0), acc)
    acc = acc * tl.load(sc + n)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


@triton.jit
def lut_dot(a, q, code, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Codebook weights: gathered in the loop."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        w = tl.load(code + tl.load(q + (s + k)[:, None] * N + n[None, :]).to(tl.int32))
        acc = tl.dot(x, w, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


@triton.jit
def gemv_w8_col(b, x, sc, y, N, K, BN: tl.constexpr, BK: tl.constexpr):
    """Weights K by N: sums over rows."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BK, BN), tl.float32)
    for s in range(0, K, BK):
        w = tl.load(b + (s + k)[:, None] * N + n[None, :])
        v = tl.load(x + s + k).to(tl.float32)
        acc += w.to(tl.float32) * v[:, None]
    tl.store(y + n, (tl.sum(acc, 0) * tl.load(sc + n)).to(tl.float16))


@triton.jit
def gemv_w4(b, x, sc, y, N, K, G: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BN,), tl.float32)
    for s in range(0, K, BK):
        w = tl.load(b + ((s + k) // 8)[:, None] * N + n[None, :])
        w = (w >> ((k % 8) * 4)[:, None]) & 15
        v = tl.load(x + s + k).to(tl.float32)
        g = tl.load(sc + (s // G) * N + n).to(tl.float32)
        acc += tl.sum((w.to(tl.float32) - 8.0) * v[:, None], 0) * g
    tl.store(y + n, acc.to(tl.float16))


FULL = (4096, 4096, 4096)
HALF = (2048, 4096, 4096)
#: Decoding: few rows, and all weights are read once.
FEW = (16, 8192, 8192)


def sized(m: int, n: int, k: int) -> Arguments:
    return {"M": m, "N": n, "K": k}


def integers(order: str, m: int, n: int, k: int) -> Callable[[Arrays], Arguments]:
    """Weights N by K ("nk") or K by N ("kn"); a scale for each row and each column."""

    def arguments(arrays: Arrays) -> Arguments:
        a, b = arrays.integers("i8", -8, 8, m, k), arrays.integers("i8", -8, 8, *((n, k) if order == "nk" else (k, n)))
        scales = {"sa": arrays.normal("fp32", m, scale=0.1), "sb": arrays.normal("fp32", n, scale=0.1)}
        return {"a": a, "b": b, "c": arrays.zeros("fp16", m, n), **scales, **sized(m, n, k)}

    return arguments


def fp8_blocks(m: int, n: int, k: int) -> Callable[[Arrays], Arguments]:
    """A scale for 128 elements of a row of a, and for 128 by 128 weights."""

    def arguments(arrays: Arrays) -> Arguments:
        a, b = arrays.normal("fp8e4nv", m, k), arrays.normal("fp8e4nv", n, k)
        scales = {"sa": arrays.normal("fp32", m, k // 128), "sb": arrays.normal("fp32", cdiv(n, 128), k // 128)}
        return {"a": a, "b": b, "c": arrays.zeros("bf16", m, n), **scales, **sized(m, n, k)}

    return arguments


def fp8_weights(m: int, n: int, k: int) -> Callable[[Arrays], Arguments]:
    def arguments(arrays: Arrays) -> Arguments:
        b, scale = arrays.normal("fp8e4nv", n, k, scale=0.5), arrays.normal("fp32", n, scale=0.1)
        a = arrays.normal("bf16", m, k, scale=0.5)
        return {"a": a, "b": b, "sc": scale, "c": arrays.zeros("bf16", m, n), **sized(m, n, k)}

    return arguments


def int8_weights(m: int, n: int, k: int) -> Callable[[Arrays], Arguments]:
    def arguments(arrays: Arrays) -> Arguments:
        b, scale = arrays.integers("i8", -8, 8, k, n), arrays.normal("fp32", n, scale=0.1)
        a = arrays.normal("bf16", m, k, scale=0.5)
        return {"a": a, "b": b, "sc": scale, "c": arrays.zeros("bf16", m, n), **sized(m, n, k)}

    return arguments


def packed_words(m: int, n: int, k: int) -> Callable[[Arrays], Arguments]:
    """Eight weights in a word, a scale for 128 of them."""

    def arguments(arrays: Arrays) -> Arguments:
        b, scale = arrays.integers("i32", -(2**31), 2**31 - 1, k // 8, n), arrays.normal("fp16", k // 128, n, scale=0.1)
        a = arrays.normal("fp16", m, k)
        return {"a": a, "b": b, "sc": scale, "c": arrays.zeros("fp16", m, n), **sized(m, n, k)}

    return arguments


def words_with_zeros(m: int, n: int, k: int) -> Callable[[Arrays], Arguments]:
    """As :func:`packed_words`, with eight zero points in a word."""

    def arguments(arrays: Arrays) -> Arguments:
        given = packed_words(m, n, k)(arrays)
        zeros = arrays.integers("i32", -(2**31), 2**31 - 1, k // 128, n // 8)
        return {
            **{name: given[name] for name in ("a", "b", "sc")},
            "zeros": zeros,
            "c": given["c"],
            **sized(m, n, k),
            "G": 128,
        }

    return arguments


def packed_columns(arrays: Arrays) -> Arguments:
    m, n, k = HALF
    b, scale = arrays.integers("i8", -128, 128, k, n // 2), arrays.normal("fp32", n, scale=0.1)
    a = arrays.normal("bf16", m, k)
    return {"a": a, "b": b, "sc": scale, "c": arrays.zeros("bf16", m, n), **sized(m, n, k)}


def packed_rows(m: int, n: int, k: int) -> Callable[[Arrays], Arguments]:
    def arguments(arrays: Arrays) -> Arguments:
        b, scale = arrays.integers("u8", 0, 256, n, k // 2), arrays.normal("fp32", n, scale=0.1)
        a = arrays.normal("fp16", m, k)
        return {"a": a, "b": b, "sc": scale, "c": arrays.zeros("fp16", m, n), **sized(m, n, k)}

    return arguments


def codebook(arrays: Arrays) -> Arguments:
    m, n, k = HALF
    q, code = arrays.integers("u8", 0, 256, k, n), arrays.normal("fp16", 256)
    return {"a": arrays.normal("fp16", m, k), "q": q, "code": code, "c": arrays.zeros("fp16", m, n), **sized(m, n, k)}


def vector_and_bytes(arrays: Arrays) -> Arguments:
    n, k = 16384, 8192
    b, scale = arrays.integers("i8", -100, 100, k, n), arrays.normal("fp32", n, scale=0.01)
    return {"b": b, "x": arrays.normal("fp16", k), "sc": scale, "y": arrays.zeros("fp16", n), "N": n, "K": k}


def vector_and_words(arrays: Arrays) -> Arguments:
    n, k = 16384, 8192
    b, scale = arrays.integers("i32", -(2**31), 2**31 - 1, k // 8, n), arrays.normal("fp16", k // 128, n, scale=0.1)
    return {"b": b, "x": arrays.normal("fp16", k), "sc": scale, "y": arrays.zeros("fp16", n), "N": n, "K": k}


CASES = [
    Case("int8_mm_nk", int8_mm, integers("nk", *FULL), tiles, {"BM": 128, "BN": 128, "BK": 128}, num_warps=8),
    Case("int8_mm_kn", int8_mm_row, integers("kn", *FULL), tiles, {"BM": 128, "BN": 128, "BK": 64}, num_warps=8),
    Case("int8_mm_small_m", int8_mm, integers("nk", *FEW), tiles, {"BM": 16, "BN": 64, "BK": 256}, num_stages=4),
    Case("fp8_block_mm", fp8_block_mm, fp8_blocks(*FULL), tiles, {"BM": 64, "BN": 128, "BK": 128}),
    Case(
        "fp8_block_mm_small_m",
        fp8_block_mm,
        fp8_blocks(16, 7168, 4096),
        tiles,
        {"BM": 16, "BN": 64, "BK": 128},
        num_stages=4,
    ),
    Case("fp8w_mm", fp8w_mm, fp8_weights(*FULL), tiles, {"BM": 128, "BN": 128, "BK": 64}, num_warps=8),
    Case("fp8w_mm_small_m", fp8w_mm, fp8_weights(*FEW), tiles, {"BM": 16, "BN": 64, "BK": 128}, num_stages=4),
    Case("w8_mm", w8_mm, int8_weights(*FULL), tiles, {"BM": 128, "BN": 128, "BK": 64}, num_warps=8),
    Case("w8_mm_small_m", w8_mm, int8_weights(*FEW), tiles, {"BM": 16, "BN": 64, "BK": 128}, num_stages=4),
    Case("w4_mm", w4_mm, packed_words(*HALF), tiles, {"G": 128, "BM": 64, "BN": 128, "BK": 64}),
    Case("w4_mm_small_m", w4_mm, packed_words(*FEW), tiles, {"G": 128, "BM": 16, "BN": 64, "BK": 128}, num_stages=4),
    Case("w4_zeros_mm", w4_zeros_mm, words_with_zeros(32, 4096, 4096), tiles, {"BM": 32, "BN": 64, "BK": 128}),
    Case("w4_join_mm", w4_join_mm, packed_columns, tiles, {"BM": 64, "BN": 128, "BK": 64}),
    Case("w4_nk_mm", w4_nk_mm, packed_rows(*HALF), tiles, {"BM": 64, "BN": 128, "BK": 128}),
    Case("w4_nk_mm_small_m", w4_nk_mm, packed_rows(*FEW), tiles, {"BM": 16, "BN": 64, "BK": 256}, num_stages=4),
    Case("lut_dot", lut_dot, codebook, tiles, {"BM": 64, "BN": 128, "BK": 64}),
    Case("gemv_w8_col", gemv_w8_col, vector_and_bytes, columns, {"BN": 64, "BK": 64}),
    Case("gemv_w4", gemv_w4, vector_and_words, columns, {"G": 128, "BN": 64, "BK": 128}),
]
