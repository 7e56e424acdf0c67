"""Products whose operands threads make on the way: casts, activations, gates, norms, scales, packed bits."""

from __future__ import annotations

from collections.abc import Callable

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, tiles


@triton.jit
def cast_left(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A of another type: activations in f32, 8-bit floats or integers."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        y = tl.load(b + (s + k)[:, None] * N + n[None, :])
        x = tl.load(a + m[:, None] * K + (s + k)[None, :]).to(y.dtype)
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def relu_left(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + (s + k)[:, None] * N + n[None, :])
        acc = tl.dot(tl.maximum(x, 0.0).to(tl.bfloat16), y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def swiglu_left(g, u, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The second layer of a gated network: silu(g) * u is never in memory."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        place = m[:, None] * K + (s + k)[None, :]
        gate = tl.load(g + place).to(tl.float32)
        x = gate * tl.sigmoid(gate) * tl.load(u + place).to(tl.float32)
        acc = tl.dot(x.to(tl.bfloat16), tl.load(b + (s + k)[:, None] * N + n[None, :]), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def normed_left(a, mean, rstd, w, bias, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A layer norm whose rows have been looked at before."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    mu, scale = tl.load(mean + m), tl.load(rstd + m)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :]).to(tl.float32)
        x = (x - mu[:, None]) * scale[:, None]
        x = x * tl.load(w + s + k)[None, :] + tl.load(bias + s + k)[None, :]
        acc = tl.dot(x.to(tl.bfloat16), tl.load(b + (s + k)[:, None] * N + n[None, :]), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def relu_backward(dy, h, w, dx, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """dx = (dy where h > 0) w^T; w is [N, K]."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        place = m[:, None] * K + (s + k)[None, :]
        x = tl.where(tl.load(h + place) > 0, tl.load(dy + place), 0.0).to(tl.bfloat16)
        acc = tl.dot(x, tl.load(w + n[None, :] * K + (s + k)[:, None]), acc)
    tl.store(dx + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def weight_gradient(x, dy, dw, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """dw = gelu(x)^T dy over K rows of both."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        v = tl.load(x + (s + k)[:, None] * M + m[None, :]).to(tl.float32)
        v = v * tl.sigmoid(1.702 * v)
        acc = tl.dot(tl.trans(v.to(tl.bfloat16)), tl.load(dy + (s + k)[:, None] * N + n[None, :]), acc)
    tl.store(dw + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def block_scaled_left(a, scales, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """8-bit floats with a scale for each row and BK columns."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        scale = tl.load(scales + m * (K // BK) + s // BK)
        x = tl.load(a + m[:, None] * K + (s + k)[None, :]).to(tl.float32) * scale[:, None]
        acc = tl.dot(x.to(tl.bfloat16), tl.load(b + (s + k)[:, None] * N + n[None, :]), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def scaled_right(a, b, scales, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """B in bf16 with a scale for each of its rows, as of expert weights that are pruned or gated."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + (s + k)[:, None] * N + n[None, :]) * tl.load(scales + s + k)[:, None]
        acc = tl.dot(x, y.to(tl.bfloat16), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def ternary(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Weights of -1, 0 and 1, four in a byte, by activations of 8 bits."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for part in range(4):
        for s in range(0, K // 4, BK):
            x = tl.load(a + m[:, None] * K + (part * (K // 4) + s + k)[None, :])
            packed = tl.load(b + (s + k)[:, None] * N + n[None, :])
            acc += tl.dot(x, (((packed >> (2 * part)) & 3) - 1).to(tl.int8))
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def interleaved(a, b, z, sc, c, M, N, K, G: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Eight 4-bit weights along N in a word, with zero points and scales of G rows, as AWQ packs them: words are
    interleaved with themselves until each stands eight times."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    packed = tl.program_id(1) * (BN // 8) + tl.arange(0, BN // 8)
    k = tl.arange(0, BK)
    # Nibbles are in the order 0, 4, 1, 5, 2, 6, 3, 7.
    place = tl.arange(0, BN) % 8
    shift = (place % 2 * 4 + place // 2) * 4
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        w = tl.load(b + (s + k)[:, None] * (N // 8) + packed[None, :])
        w = tl.interleave(w, w)
        w = tl.interleave(w, w)
        w = (tl.interleave(w, w) >> shift[None, :]) & 15
        zero = tl.load(z + (s // G) * (N // 8) + packed)
        zero = tl.interleave(zero, zero)
        zero = tl.interleave(zero, zero)
        zero = (tl.interleave(zero, zero) >> shift) & 15
        scale = tl.load(sc + (s // G) * N + n)
        acc = tl.dot(x, ((w - zero[None, :]) * scale[None, :]).to(tl.float16), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


def product(arrays: Arrays, kind: str, m: int = 4096, n: int = 4096, k: int = 4096) -> Arguments:
    a = arrays.integers("i8", -8, 8, m, k) if kind == "i8" else arrays.normal(kind, m, k)
    return {"a": a, **right(arrays, m, n, k)}


def right(arrays: Arrays, m: int, n: int, k: int, name: str = "b", out: str = "c") -> Arguments:
    return {name: arrays.normal("bf16", k, n, scale=0.1), out: arrays.zeros("bf16", m, n), "M": m, "N": n, "K": k}


def of_f32(arrays: Arrays) -> Arguments:
    return product(arrays, "fp32")


def of_f8(arrays: Arrays) -> Arguments:
    return product(arrays, "fp8e4nv")


def of_i8(arrays: Arrays) -> Arguments:
    return product(arrays, "i8")


def of_bf16(arrays: Arrays) -> Arguments:
    return product(arrays, "bf16")


def few_rows(arrays: Arrays) -> Arguments:
    return product(arrays, "bf16", 32, 8192, 8192)


def gates(arrays: Arrays) -> Arguments:
    m, n, k = 4096, 4096, 8192
    return {name: arrays.normal("bf16", m, k) for name in ("g", "u")} | right(arrays, m, n, k)


def norms(arrays: Arrays) -> Arguments:
    m, n, k = 4096, 4096, 4096
    rows = {"mean": arrays.normal("fp32", m), "rstd": arrays.uniform("fp32", 0.5, 2.0, m)}
    columns = {"w": arrays.normal("fp32", k), "bias": arrays.normal("fp32", k)}
    return {"a": arrays.normal("bf16", m, k), **rows, **columns, **right(arrays, m, n, k)}


def gradients(arrays: Arrays) -> Arguments:
    m, n, k = 4096, 4096, 4096
    given = {name: arrays.normal("bf16", m, k) for name in ("dy", "h")}
    return given | {"w": arrays.normal("bf16", n, k), "dx": arrays.zeros("bf16", m, n), "M": m, "N": n, "K": k}


def of_weights(arrays: Arrays) -> Arguments:
    m, n, k = 4096, 4096, 8192
    return {"x": arrays.normal("bf16", k, m), **right(arrays, m, n, k, "dy", "dw")}


def blocks_of_f8(arrays: Arrays) -> Arguments:
    m, n, k = 4096, 4096, 4096
    scales = arrays.uniform("fp32", 0.5, 2.0, m, k // 128)
    return {"a": arrays.normal("fp8e4nv", m, k), "scales": scales, **right(arrays, m, n, k)}


def rows_of_b(arrays: Arrays) -> Arguments:
    made = product(arrays, "bf16")
    return made | {"scales": arrays.uniform("fp32", 0.5, 2.0, made["K"])}


def two_bits(arrays: Arrays) -> Arguments:
    m, n, k = 4096, 4096, 4096
    given = {"a": arrays.integers("i8", -8, 8, m, k), "b": arrays.integers("u8", 0, 255, k // 4, n)}
    return given | {"c": arrays.zeros("i32", m, n), "M": m, "N": n, "K": k}


def awq(m: int, n: int, k: int) -> Callable[[Arrays], Arguments]:
    def make(arrays: Arrays) -> Arguments:
        words = {"b": arrays.integers("i32", -(2**31), 2**31 - 1, k, n // 8)}
        words["z"] = arrays.integers("i32", -(2**31), 2**31 - 1, k // 128, n // 8)
        scales = arrays.normal("fp16", k // 128, n, scale=0.1)
        return {"a": arrays.normal("fp16", m, k), **words, "sc": scales, "c": arrays.zeros("fp16", m, n),
                "M": m, "N": n, "K": k}  # fmt: skip

    return make


WIDE = {"BM": 128, "BN": 256, "BK": 64}
SQUARE = {"BM": 128, "BN": 128, "BK": 64}
CASES = [
    Case("f32_left_mm", cast_left, of_f32, tiles, {"BM": 128, "BN": 128, "BK": 32}, num_warps=8),
    Case("f8_left_mm", cast_left, of_f8, tiles, WIDE, num_warps=8),
    Case("i8_left_mm", cast_left, of_i8, tiles, {"BM": 64, "BN": 128, "BK": 64}, num_stages=4),
    Case("relu_left_mm", relu_left, of_bf16, tiles, WIDE, num_warps=8),
    Case("relu_left_square_mm", relu_left, of_bf16, tiles, SQUARE),
    Case("relu_left_small_m", relu_left, few_rows, tiles, {"BM": 32, "BN": 64, "BK": 128}),
    Case("swiglu_left_mm", swiglu_left, gates, tiles, SQUARE, num_warps=8),
    Case("normed_left_mm", normed_left, norms, tiles, SQUARE, num_warps=8),
    Case("relu_backward_mm", relu_backward, gradients, tiles, SQUARE, num_warps=8),
    Case("weight_gradient_mm", weight_gradient, of_weights, tiles, SQUARE, num_warps=8),
    Case(
        "block_scaled_left_mm", block_scaled_left, blocks_of_f8, tiles, {"BM": 128, "BN": 128, "BK": 128}, num_warps=8
    ),
    Case("scaled_right_mm", scaled_right, rows_of_b, tiles, SQUARE, num_warps=8),
    Case("awq_mm", interleaved, awq(2048, 4096, 4096), tiles, {"G": 128, "BM": 64, "BN": 128, "BK": 64}),
    Case("awq_mm_small_m", interleaved, awq(32, 4096, 4096), tiles, {"G": 128, "BM": 32, "BN": 32, "BK": 64}),
    Case("ternary_mm", ternary, two_bits, tiles, {"BM": 128, "BN": 128, "BK": 128}, num_warps=8),
]
