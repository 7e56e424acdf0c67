"""What lies between the products of a network: gates, rotations of positions, dropout, updates of weights."""

from __future__ import annotations

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, blocks, cdiv, rows


@triton.jit
def swiglu(x, y, o, N, B: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, B)
    a = tl.load(x + r * N + c, mask=c < N, other=0.0).to(tl.float32)
    b = tl.load(y + r * N + c, mask=c < N, other=0.0)
    tl.store(o + r * N + c, (a * tl.sigmoid(a)).to(tl.bfloat16) * b, mask=c < N)


@triton.jit
def gelu_bias(x, b, o, n, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32) + tl.load(b + i % N, mask=i < n, other=0.0).to(tl.float32)
    v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(o + i, v.to(tl.float16), mask=i < n)


@triton.jit
def deinterleave(x, o, n, B: tl.constexpr):
    """Gated pairs: x[2i] * silu(x[2i+1])."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + 2 * i, mask=i < n).to(tl.float32)
    b = tl.load(x + 2 * i + 1, mask=i < n).to(tl.float32)
    tl.store(o + i, (a * b * tl.sigmoid(b)).to(tl.bfloat16), mask=i < n)


@triton.jit
def rope_half(q, cos, sin, stride, H: tl.constexpr, D: tl.constexpr, BH: tl.constexpr):
    t = tl.program_id(0)
    d = tl.arange(0, D // 2)
    h = tl.arange(0, BH)
    c = tl.load(cos + t * (D // 2) + d)
    s = tl.load(sin + t * (D // 2) + d)
    p = q + t * stride + h[:, None] * D + d[None, :]
    ok = h[:, None] < H
    x = tl.load(p, mask=ok, other=0.0).to(tl.float32)
    y = tl.load(p + D // 2, mask=ok, other=0.0).to(tl.float32)
    tl.store(p, (x * c[None, :] - y * s[None, :]).to(tl.bfloat16), mask=ok)
    tl.store(p + D // 2, (y * c[None, :] + x * s[None, :]).to(tl.bfloat16), mask=ok)


@triton.jit
def rope_pairs(q, o, cos, sin, n_el, D: tl.constexpr, HD: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    ok = i < n_el
    x0 = tl.load(q + 2 * i, mask=ok, other=0.0).to(tl.float32)
    x1 = tl.load(q + 2 * i + 1, mask=ok, other=0.0).to(tl.float32)
    at = (i // (HD // 2)) * (D // 2) + i % (D // 2)
    c = tl.load(cos + at, mask=ok, other=0.0)
    s = tl.load(sin + at, mask=ok, other=0.0)
    tl.store(o + 2 * i, (x0 * c - x1 * s).to(tl.bfloat16), mask=ok)
    tl.store(o + 2 * i + 1, (x1 * c + x0 * s).to(tl.bfloat16), mask=ok)


@triton.jit
def rope_split(q, o, cos, sin, n_rows, D: tl.constexpr, BR: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    d = tl.arange(0, D)
    h = tl.arange(0, D // 2)
    x = tl.load(q + r[:, None] * D + d[None, :])
    a, b = tl.split(x.to(tl.float32).reshape(BR, D // 2, 2))
    c = tl.load(cos + r[:, None] * (D // 2) + h[None, :])
    s = tl.load(sin + r[:, None] * (D // 2) + h[None, :])
    y = tl.join(a * c - b * s, b * c + a * s).reshape(BR, D)
    tl.store(o + r[:, None] * D + d[None, :], y.to(tl.bfloat16))


@triton.jit
def dropout(x, y, n, p, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    keep = tl.rand(seed, i) > p
    tl.store(y + i, tl.where(keep, v / (1.0 - p), 0.0), mask=i < n)


@triton.jit
def dropout4(x, y, n, p, seed, B: tl.constexpr):
    i = tl.program_id(0) * B * 4 + tl.arange(0, B)
    a, b, c, d = tl.rand4x(seed, i)
    s = 1.0 / (1.0 - p)
    for j in tl.static_range(4):
        r = a if j == 0 else (b if j == 1 else (c if j == 2 else d))
        at = i + j * B
        v = tl.load(x + at, mask=at < n)
        tl.store(y + at, tl.where(r > p, v * s, 0.0), mask=at < n)


@triton.jit
def adam(p, g, m, v, lr, b1, b2, eps, wd, c1, c2, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    ok = i < n
    gg = tl.load(g + i, mask=ok, other=0.0).to(tl.float32)
    pp = tl.load(p + i, mask=ok, other=0.0).to(tl.float32)
    mm = b1 * tl.load(m + i, mask=ok, other=0.0) + (1.0 - b1) * gg
    vv = b2 * tl.load(v + i, mask=ok, other=0.0) + (1.0 - b2) * gg * gg
    pp = pp * (1.0 - lr * wd) - lr * (mm / c1) / (tl.sqrt(vv / c2) + eps)
    tl.store(p + i, pp.to(tl.bfloat16), mask=ok)
    tl.store(m + i, mm, mask=ok)
    tl.store(v + i, vv, mask=ok)


@triton.jit
def adam_multi(ps, gs, ms, sizes, lr, b1, B: tl.constexpr):
    t = tl.program_id(0)
    p = tl.load(ps + t).to(tl.pointer_type(tl.float32))
    g = tl.load(gs + t).to(tl.pointer_type(tl.float32))
    m = tl.load(ms + t).to(tl.pointer_type(tl.float32))
    n = tl.load(sizes + t)
    for s in range(tl.program_id(1) * B, n, tl.num_programs(1) * B):
        i = s + tl.arange(0, B)
        ok = i < n
        mm = b1 * tl.load(m + i, mask=ok) + (1.0 - b1) * tl.load(g + i, mask=ok)
        tl.store(m + i, mm, mask=ok)
        tl.store(p + i, tl.load(p + i, mask=ok) - lr * mm, mask=ok)


@triton.jit
def complex_mul(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    ok = i < n
    a = tl.load(x + 2 * i, mask=ok)
    b = tl.load(x + 2 * i + 1, mask=ok)
    c = tl.load(y + 2 * i, mask=ok)
    d = tl.load(y + 2 * i + 1, mask=ok)
    tl.store(o + 2 * i, a * c - b * d, mask=ok)
    tl.store(o + 2 * i + 1, a * d + b * c, mask=ok)


MANY = 1 << 25


def gates(arrays: Arrays) -> Arguments:
    r, n = 8192, 14336
    x, y = arrays.normal("bf16", r, n), arrays.normal("bf16", r, n)
    return {"x": x, "y": y, "o": arrays.zeros("bf16", r, n), "N": n}


def biased(arrays: Arrays) -> Arguments:
    x, b = arrays.normal("fp16", MANY), arrays.normal("fp16", 4096)
    return {"x": x, "b": b, "o": arrays.zeros("fp16", MANY), "n": MANY, "N": 4096}


def gated_pairs(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("bf16", MANY, 2), "o": arrays.zeros("bf16", MANY), "n": MANY}


def angles(arrays: Arrays, n: int) -> Arguments:
    return {name: arrays.normal("fp32", n, 64) for name in ("cos", "sin")}


def heads(arrays: Arrays) -> Arguments:
    return {"q": arrays.normal("bf16", 8192, 4096), **angles(arrays, 8192), "stride": 4096}


def head_pairs(arrays: Arrays) -> Arguments:
    n, width = 8192, 4096
    q, o = arrays.normal("bf16", n, width), arrays.zeros("bf16", n, width)
    return {"q": q, "o": o, **angles(arrays, n), "n_el": n * width // 2}


def head_rows(arrays: Arrays) -> Arguments:
    n = 262144
    q, o = arrays.normal("bf16", n, 128), arrays.zeros("bf16", n, 128)
    return {"q": q, "o": o, **angles(arrays, n), "n_rows": n}


def dropped(arrays: Arrays) -> Arguments:
    x, y = arrays.normal("fp32", MANY), arrays.zeros("fp32", MANY)
    return {"x": x, "y": y, "n": MANY, "p": 0.1, "seed": 77}


def weights(arrays: Arrays) -> Arguments:
    given = {name: arrays.normal("bf16", MANY) for name in ("p", "g")}
    moments = {"m": arrays.normal("fp32", MANY), "v": arrays.uniform("fp32", 0.0, 2.0, MANY)}
    rates = {"lr": 0.001, "b1": 0.9, "b2": 0.99, "eps": 1e-8, "wd": 0.01, "c1": 0.5, "c2": 0.5}
    return {**given, **moments, **rates, "n": MANY}


def many_weights(arrays: Arrays) -> Arguments:
    """32 arrays of each, given by their addresses."""
    sizes = [1 << 20] * 32
    given = {name: arrays.addresses([arrays.normal("fp32", n) for n in sizes]) for name in ("ps", "gs", "ms")}
    return {**given, "sizes": arrays.listed(sizes), "lr": 0.001, "b1": 0.9}


def complex_numbers(arrays: Arrays) -> Arguments:
    n = 1 << 24
    x, y = arrays.normal("fp32", n, 2), arrays.normal("fp32", n, 2)
    return {"x": x, "y": y, "o": arrays.zeros("fp32", n, 2), "n": n}


CASES = [
    Case("swiglu", swiglu, gates, rows, {"B": 16384}, num_warps=8),
    Case("gelu_bias", gelu_bias, biased, blocks, {"B": 1024}),
    Case("deinterleave", deinterleave, gated_pairs, blocks, {"B": 1024}),
    Case("rope_half", rope_half, heads, lambda a: (a["q"].shape[0],), {"H": 32, "D": 128, "BH": 32}),
    Case("rope_pairs", rope_pairs, head_pairs, lambda a: (cdiv(a["n_el"], a["B"]),), {"D": 128, "HD": 4096, "B": 1024}),
    Case("rope_split", rope_split, head_rows, lambda a: (a["n_rows"] // a["BR"],), {"D": 128, "BR": 32}),
    Case("dropout", dropout, dropped, blocks, {"B": 1024}),
    Case("dropout4", dropout4, dropped, lambda a: (cdiv(a["n"], 4 * a["B"]),), {"B": 512}),
    Case("adam", adam, weights, blocks, {"B": 1024}),
    Case("adam_multi", adam_multi, many_weights, lambda a: (a["sizes"].shape[0], 32), {"B": 1024}),
    Case("complex_mul", complex_mul, complex_numbers, blocks, {"B": 1024}),
]
