"""To fewer bits and back: scales of rows, groups and blocks, packed integers, tables, casts."""

from __future__ import annotations

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, blocks, rows

libdevice = tl.extra.cuda.libdevice


@triton.jit
def quant_token(x, q, sc, N, B: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, B)
    v = tl.load(x + r * N + c, mask=c < N, other=0.0).to(tl.float32)
    s = tl.maximum(tl.max(tl.abs(v)), 1e-10) / 127.0
    z = libdevice.rint(v / s)
    tl.store(q + r * N + c, z.to(tl.int8), mask=c < N)
    tl.store(sc + r, s)


@triton.jit
def quant_group_fp8(x, q, sc, G: tl.constexpr, BG: tl.constexpr):
    g = tl.program_id(0) * BG + tl.arange(0, BG)
    c = tl.arange(0, G)
    v = tl.load(x + g[:, None] * G + c[None, :]).to(tl.float32)
    s = tl.maximum(tl.max(tl.abs(v), 1), 1e-10) / 448.0
    z = tl.clamp(v / s[:, None], -448.0, 448.0)
    tl.store(q + g[:, None] * G + c[None, :], z.to(tl.float8e4nv))
    tl.store(sc + g, s)


@triton.jit
def quant_block_fp8(x, q, sc, M, N, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    ok = (m[:, None] < M) & (n[None, :] < N)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=ok, other=0.0).to(tl.float32)
    s = tl.max(tl.abs(v)) / 448.0
    tl.store(q + m[:, None] * N + n[None, :], (v / s).to(tl.float8e4nv), mask=ok)
    tl.store(sc + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), s)


@triton.jit
def pack4(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    w = tl.zeros((B,), tl.int32)
    for j in tl.static_range(8):
        v = tl.load(x + i * 8 + j, mask=i < n, other=0).to(tl.int32)
        w |= (v & 15) << (4 * j)
    tl.store(o + i, w, mask=i < n)


@triton.jit
def pack_bits(x, o, R: tl.constexpr):
    """Booleans to words: 32 columns reduced to one."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, 32)
    v = (tl.load(x + r[:, None] * 32 + c[None, :]) > 0).to(tl.int32)
    tl.store(o + r, tl.sum(v << c[None, :], 1))


@triton.jit
def unpack4(w, sc, o, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    v = tl.load(w + m[:, None] * (N // 8) + (n // 8)[None, :])
    v = ((v >> ((n % 8) * 4)[None, :]) & 15) - 8
    s = tl.load(sc + m[:, None] * (N // 128) + (n // 128)[None, :])
    tl.store(o + m[:, None] * N + n[None, :], v.to(tl.float16) * s)


@triton.jit
def nf4_dequant(q, code, amax, o, n, B: tl.constexpr):
    """Two codes in a byte, looked up in a table (NF4)."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(q + i, mask=i < n, other=0).to(tl.int32)
    s = tl.load(amax + i // 32, mask=i < n, other=0.0)
    hi = tl.load(code + (v >> 4)) * s
    lo = tl.load(code + (v & 15)) * s
    y = tl.interleave(hi.to(tl.float16), lo.to(tl.float16))
    at = tl.program_id(0) * B * 2 + tl.arange(0, 2 * B)
    tl.store(o + at, y, mask=at < 2 * n)


@triton.jit
def cast_kernel(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n).to(o.dtype.element_ty), mask=i < n)


def token_rows(arrays: Arrays) -> Arguments:
    r, n = 16384, 8192
    q, scale = arrays.zeros("i8", r, n), arrays.zeros("fp32", r)
    return {"x": arrays.normal("bf16", r, n), "q": q, "sc": scale, "N": n}


def groups(arrays: Arrays) -> Arguments:
    n = 1 << 20
    q, scale = arrays.zeros("fp8e4nv", n, 128), arrays.zeros("fp32", n)
    return {"x": arrays.normal("bf16", n, 128), "q": q, "sc": scale}


def squares(arrays: Arrays) -> Arguments:
    m, n = 8192, 8192
    q, scale = arrays.zeros("fp8e4nv", m, n), arrays.zeros("fp32", m // 128, n // 128)
    return {"x": arrays.normal("bf16", m, n), "q": q, "sc": scale, "M": m, "N": n}


def nibbles(arrays: Arrays) -> Arguments:
    n = 1 << 23
    return {"x": arrays.integers("u8", 0, 16, n, 8), "o": arrays.zeros("i32", n), "n": n}


def flags(arrays: Arrays) -> Arguments:
    n = 1 << 22
    return {"x": arrays.integers("i8", -1, 2, n, 32), "o": arrays.zeros("i32", n)}


def words(arrays: Arrays) -> Arguments:
    m, n = 8192, 8192
    w, scale = arrays.integers("i32", -(2**31), 2**31 - 1, m, n // 8), arrays.normal("fp16", m, n // 128)
    return {"w": w, "sc": scale, "o": arrays.zeros("fp16", m, n), "N": n}


def codes(arrays: Arrays) -> Arguments:
    n = 1 << 25
    code, largest = arrays.normal("fp32", 16), arrays.normal("fp32", n // 32)
    q = arrays.integers("u8", 0, 256, n)
    return {"q": q, "code": code, "amax": largest, "o": arrays.zeros("fp16", 2 * n), "n": n}


def cast(kind: str, to: str) -> Case:
    n = 1 << 26

    def arguments(arrays: Arrays) -> Arguments:
        x = arrays.integers("i8", -128, 128, n) if kind == "i8" else arrays.normal(kind, n)
        return {"x": x, "o": arrays.zeros(to, n), "n": n}

    short = {"fp32": "f32", "fp16": "f16", "fp8e4nv": "f8"}
    return Case(f"cast_{short.get(kind, kind)}_{short.get(to, to)}", cast_kernel, arguments, blocks, {"B": 2048})


def in_groups(a: Arguments) -> tuple[int, ...]:
    return (a["x"].shape[0] // a["BG"],)


CASES = [
    Case("quant_token", quant_token, token_rows, rows, {"B": 8192}, num_warps=8),
    Case("quant_group_fp8", quant_group_fp8, groups, in_groups, {"G": 128, "BG": 16}),
    Case("quant_group_fp8_one", quant_group_fp8, groups, in_groups, {"G": 128, "BG": 1}, num_warps=1),
    Case(
        "quant_block_fp8",
        quant_block_fp8,
        squares,
        lambda a: (a["M"] // a["B"], a["N"] // a["B"]),
        {"B": 128},
        num_warps=8,
    ),
    Case("pack4", pack4, nibbles, blocks, {"B": 512}),
    Case("pack_bits", pack_bits, flags, lambda a: (a["o"].shape[0] // a["R"],), {"R": 128}),
    Case("unpack4", unpack4, words, lambda a: (a["w"].shape[0] // a["BM"], a["N"] // a["BN"]), {"BM": 32, "BN": 128}),
    Case("nf4_dequant", nf4_dequant, codes, blocks, {"B": 1024}),
    cast("fp8e4nv", "bf16"),
    cast("fp32", "fp8e4nv"),
    cast("fp16", "fp8e4nv"),
    cast("i8", "fp16"),
    cast("i8", "bf16"),
    cast("i8", "fp32"),
]
