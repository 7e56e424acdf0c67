"""Rows that become others: softmax, losses, norms of rows and of groups of channels."""

from __future__ import annotations

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv, rows


@triton.jit
def cross_entropy(x, lab, loss, lse, V, stride, B: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    x += r * stride
    best = float("-inf")
    total = 0.0
    for s in range(0, V, B):
        c = s + tl.arange(0, B)
        v = tl.load(x + c, mask=c < V, other=float("-inf")).to(tl.float32)
        new = tl.maximum(best, tl.max(v))
        total = total * tl.exp(best - new) + tl.sum(tl.exp(v - new))
        best = new
    label = tl.load(lab + r)
    z = best + tl.log(total)
    tl.store(loss + r, z - tl.load(x + label).to(tl.float32))
    tl.store(lse + r, z)
    tl.debug_barrier()
    for s in range(0, V, B):
        c = s + tl.arange(0, B)
        v = tl.load(x + c, mask=c < V, other=float("-inf")).to(tl.float32)
        g = tl.exp(v - z) / 8.0
        g = tl.where(c == label, g - 0.125, g)
        tl.store(x + c, g.to(tl.bfloat16), mask=c < V)


@triton.jit
def online_lse(x, o, N, B: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    best = tl.full((B,), -1e30, tl.float32)
    total = tl.zeros((B,), tl.float32)
    for s in range(0, N, B):
        c = s + tl.arange(0, B)
        v = tl.load(x + r * N + c, mask=c < N, other=-1e30).to(tl.float32)
        new = tl.maximum(best, v)
        total = total * tl.exp(best - new) + tl.exp(v - new)
        best = new
    top = tl.max(best)
    tl.store(o + r, top + tl.log(tl.sum(total * tl.exp(best - top))))


@triton.jit
def softmax_odd(x, o, N, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + r * N + c, mask=c < N, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + r * N + c, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=c < N)


@triton.jit
def rms_residual(x, r, w, o, N, eps, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, B)
    ok = c < N
    v = tl.load(x + i * N + c, mask=ok, other=0.0).to(tl.float32) + tl.load(r + i * N + c, mask=ok, other=0.0).to(
        tl.float32
    )
    tl.store(r + i * N + c, v.to(tl.bfloat16), mask=ok)
    s = tl.rsqrt(tl.sum(v * v) / N + eps)
    tl.store(o + i * N + c, (v * s * tl.load(w + c, mask=ok, other=0.0).to(tl.float32)).to(tl.bfloat16), mask=ok)


@triton.jit
def ln_small(x, w, b, o, M, N: tl.constexpr, BM: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=m[:, None] < M, other=0.0).to(tl.float32)
    mean = tl.sum(v, 1) / N
    d = v - mean[:, None]
    rstd = tl.rsqrt(tl.sum(d * d, 1) / N + 1e-5)
    y = d * rstd[:, None] * tl.load(w + n)[None, :] + tl.load(b + n)[None, :]
    tl.store(o + m[:, None] * N + n[None, :], y.to(tl.float16), mask=m[:, None] < M)


@triton.jit
def group_norm(x, w, b, y, HW, eps, CPG: tl.constexpr, G: tl.constexpr, B: tl.constexpr):
    g = tl.program_id(0)
    size = CPG * HW
    base = g.to(tl.int64) * size
    s1 = tl.zeros((B,), tl.float32)
    s2 = tl.zeros((B,), tl.float32)
    for s in range(0, size, B):
        i = s + tl.arange(0, B)
        v = tl.load(x + base + i, mask=i < size, other=0.0).to(tl.float32)
        s1 += v
        s2 += v * v
    mean = tl.sum(s1) / size
    rstd = tl.rsqrt(tl.sum(s2) / size - mean * mean + eps)
    for s in range(0, size, B):
        i = s + tl.arange(0, B)
        ok = i < size
        ch = (g % G) * CPG + i // HW
        v = tl.load(x + base + i, mask=ok, other=0.0).to(tl.float32)
        v = (v - mean) * rstd * tl.load(w + ch, mask=ok) + tl.load(b + ch, mask=ok)
        tl.store(y + base + i, v.to(tl.float16), mask=ok)


@triton.jit
def f64_norm(x, y, N, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + r * N + c, mask=c < N, other=0.0)
    mean = tl.sum(v) / N
    d = tl.where(c < N, v - mean, 0.0)
    var = tl.sum(d * d) / N
    tl.store(y + r * N + c, d / tl.sqrt(var + 1e-12), mask=c < N)


def tokens(arrays: Arrays) -> Arguments:
    r, v = 4096, 128256
    x, labels = arrays.normal("bf16", r, v), arrays.integers("i64", 0, v, r)
    return {"x": x, "lab": labels, "loss": arrays.zeros("fp32", r), "lse": arrays.zeros("fp32", r), "V": v, "stride": v}


def vocabulary(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("bf16", 4096, 128256), "o": arrays.zeros("fp32", 4096), "N": 128256}


def odd(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("bf16", 32768, 1999), "o": arrays.zeros("bf16", 32768, 1999), "N": 1999}


def residual(arrays: Arrays) -> Arguments:
    r, n = 16384, 4096
    given = {name: arrays.normal("bf16", r, n) for name in ("x", "r")}
    return {**given, "w": arrays.normal("bf16", n), "o": arrays.zeros("bf16", r, n), "N": n, "eps": 1e-5}


def short(arrays: Arrays) -> Arguments:
    m, n = 1 << 19, 64
    weights = {"w": arrays.normal("fp32", n), "b": arrays.normal("fp32", n)}
    return {"x": arrays.normal("fp16", m, n), **weights, "o": arrays.zeros("fp16", m, n), "M": m}


def channels(arrays: Arrays) -> Arguments:
    shape = (32, 512, 4096)
    weights = {"w": arrays.normal("fp32", 512), "b": arrays.normal("fp32", 512)}
    return {"x": arrays.normal("fp16", *shape), **weights, "y": arrays.zeros("fp16", *shape), "HW": 4096, "eps": 1e-5}


def doubles(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("fp64", 8192, 4096), "y": arrays.zeros("fp64", 8192, 4096), "N": 4096}


CASES = [
    Case("cross_entropy", cross_entropy, tokens, rows, {"B": 4096}, num_warps=8),
    Case("cross_entropy_w32", cross_entropy, tokens, rows, {"B": 32768}, num_warps=32),
    Case("online_lse", online_lse, vocabulary, rows, {"B": 2048}),
    Case("softmax_odd", softmax_odd, odd, rows, {"B": 2048}),
    Case("rms_residual", rms_residual, residual, rows, {"B": 4096}, num_warps=8),
    Case("ln_small", ln_small, short, lambda a: (cdiv(a["M"], a["BM"]),), {"N": 64, "BM": 32}),
    Case(
        "group_norm",
        group_norm,
        channels,
        lambda a: (32 * 512 // a["CPG"],),
        {"CPG": 16, "G": 32, "B": 4096},
        num_warps=8,
    ),
    Case("f64_norm", f64_norm, doubles, rows, {"B": 4096}),
]
