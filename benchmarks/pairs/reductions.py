"""Sums, maxima, means with variances and histograms: of rows, of columns, of channels and of everything."""

from __future__ import annotations

from collections.abc import Callable

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, blocks, cdiv, columns, rows, tiles


@triton.jit
def bn_stats(x, mean, var, N, C, HW, B: tl.constexpr):
    """NCHW: one channel a program, strided over N; Welford by blocks."""
    c = tl.program_id(0)
    count = 0.0
    m = 0.0
    m2 = 0.0
    total = N * HW
    for s in range(0, total, B):
        i = s + tl.arange(0, B)
        ok = i < total
        v = tl.load(x + (i // HW) * C * HW + c * HW + i % HW, mask=ok, other=0.0).to(tl.float32)
        k = tl.minimum(total - s, B).to(tl.float32)
        bm = tl.sum(v) / k
        d = tl.where(ok, v - bm, 0.0)
        bm2 = tl.sum(d * d)
        delta = bm - m
        count += k
        m += delta * k / count
        m2 += bm2 + delta * delta * k * (count - k) / count
    tl.store(mean + c, m)
    tl.store(var + c, m2 / total)


@triton.jit
def bn_stats_nhwc(x, mean, var, R, C, BR: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    s1 = tl.zeros((BR, BC), tl.float32)
    s2 = tl.zeros((BR, BC), tl.float32)
    for s in range(0, R, BR):
        r = s + tl.arange(0, BR)
        v = tl.load(x + r[:, None] * C + c[None, :], mask=(r[:, None] < R) & (c[None, :] < C), other=0.0).to(tl.float32)
        s1 += v
        s2 += v * v
    mu = tl.sum(s1, 0) / R
    tl.store(mean + c, mu, mask=c < C)
    tl.store(var + c, tl.sum(s2, 0) / R - mu * mu, mask=c < C)


@triton.jit
def _welford(m1, s1, n1, m2, s2, n2):
    d = m2 - m1
    n = n1 + n2
    r = tl.where(n == 0.0, 0.0, n2 / n)
    return m1 + d * r, s1 + s2 + d * d * n1 * r, n


@triton.jit
def welford_rows(x, mean, var, N, B: tl.constexpr):
    r = tl.program_id(0)
    m = tl.zeros((B,), tl.float32)
    s2 = tl.zeros((B,), tl.float32)
    n = tl.zeros((B,), tl.float32)
    for s in range(0, N, B):
        c = s + tl.arange(0, B)
        ok = c < N
        v = tl.load(x + r * N + c, mask=ok, other=0.0).to(tl.float32)
        d = v - m
        nn = n + 1.0
        mm = m + d / nn
        ss = s2 + d * (v - mm)
        m = tl.where(ok, mm, m)
        s2 = tl.where(ok, ss, s2)
        n = tl.where(ok, nn, n)
    m, s2, n = tl.reduce((m, s2, n), 0, _welford)
    tl.store(mean + r, m)
    tl.store(var + r, s2 / n)


@triton.jit
def colsum(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for s in range(0, M, BM):
        m = s + tl.arange(0, BM)
        v = tl.load(x + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N), other=0.0)
        acc += tl.sum(v.to(tl.float32), 0)
    tl.store(y + n, acc, mask=n < N)


@triton.jit
def colmax_partial(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N), other=float("-inf"))
    tl.atomic_max(y + n, tl.max(v, 0), mask=n < N)


@triton.jit
def reduce_3d(x, y, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    a = tl.arange(0, A)[:, None, None]
    b = tl.arange(0, B)[None, :, None]
    c = tl.arange(0, C)[None, None, :]
    v = tl.load(x + tl.program_id(0) * A * B * C + a * B * C + b * C + c).to(tl.float32)
    r = tl.sum(v, AXIS)
    i = tl.arange(0, r.shape[0])[:, None]
    j = tl.arange(0, r.shape[1])[None, :]
    tl.store(y + tl.program_id(0) * r.shape[0] * r.shape[1] + i * r.shape[1] + j, r)


@triton.jit
def layer_scale_bwd(dy, x, dw, db, M, N, BM: tl.constexpr, BN: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    a = tl.zeros((BM, BN), tl.float32)
    b = tl.zeros((BM, BN), tl.float32)
    for s in range(tl.program_id(1) * BM, M, tl.num_programs(1) * BM):
        m = s + tl.arange(0, BM)
        ok = (m[:, None] < M) & (n[None, :] < N)
        g = tl.load(dy + m[:, None] * N + n[None, :], mask=ok, other=0.0).to(tl.float32)
        v = tl.load(x + m[:, None] * N + n[None, :], mask=ok, other=0.0).to(tl.float32)
        a += g * v
        b += g
    tl.atomic_add(dw + n, tl.sum(a, 0), mask=n < N)
    tl.atomic_add(db + n, tl.sum(b, 0), mask=n < N)


@triton.jit
def grid_stride_sum(x, o, n, B: tl.constexpr):
    acc = tl.zeros((B,), tl.float32)
    for s in range(tl.program_id(0) * B, n, tl.num_programs(0) * B):
        i = s + tl.arange(0, B)
        acc += tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    tl.atomic_add(o, tl.sum(acc))


@triton.jit
def hist(x, h, n, B: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    c = tl.histogram(v, BINS, mask=i < n)
    tl.atomic_add(h + tl.arange(0, BINS), c)


@triton.jit
def moe_align_count(ids, counts, n, E: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    e = tl.load(ids + i, mask=i < n, other=-1)
    c = tl.sum((e[:, None] == tl.arange(0, E)[None, :]).to(tl.int32), 0)
    tl.atomic_add(counts + tl.arange(0, E), c)


def planes(arrays: Arrays) -> Arguments:
    n, c, hw = 64, 256, 3136
    found = {name: arrays.zeros("fp32", c) for name in ("mean", "var")}
    return {"x": arrays.normal("fp16", n, c, hw), **found, "N": n, "C": c, "HW": hw}


def pixels(arrays: Arrays) -> Arguments:
    r, c = 200704, 256
    found = {name: arrays.zeros("fp32", c) for name in ("mean", "var")}
    return {"x": arrays.normal("fp16", r, c), **found, "R": r, "C": c}


def long_rows(arrays: Arrays) -> Arguments:
    r, n = 8192, 16384
    found = {name: arrays.zeros("fp32", r) for name in ("mean", "var")}
    return {"x": arrays.normal("bf16", r, n), **found, "N": n}


def tall(kind: str) -> Callable[[Arrays], Arguments]:
    return lambda arrays: {
        "x": arrays.normal(kind, 16384, 8192),
        "y": arrays.zeros("fp32", 8192),
        "M": 16384,
        "N": 8192,
    }


def cubes(axis: int) -> Callable[[Arrays], Arguments]:
    left = [n for i, n in enumerate((16, 16, 32)) if i != axis]
    return lambda arrays: {"x": arrays.normal("fp16", 16384, 16, 16, 32), "y": arrays.zeros("fp32", 16384, *left)}


def scale_gradients(arrays: Arrays) -> Arguments:
    m, n = 32768, 4096
    given = {name: arrays.normal("bf16", m, n) for name in ("dy", "x")}
    return {**given, **{name: arrays.zeros("fp32", n) for name in ("dw", "db")}, "M": m, "N": n}


def everything(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("bf16", 1 << 27), "o": arrays.zeros("fp32", 1), "n": 1 << 27}


def values(arrays: Arrays) -> Arguments:
    return {"x": arrays.integers("i32", 0, 256, 1 << 24), "h": arrays.zeros("i32", 256), "n": 1 << 24}


def routed(arrays: Arrays) -> Arguments:
    return {"ids": arrays.integers("i32", 0, 64, 1 << 20), "counts": arrays.zeros("i32", 64), "n": 1 << 20}


CASES = [
    Case("bn_stats", bn_stats, planes, lambda a: (a["C"],), {"B": 4096}, num_warps=8),
    Case("bn_stats_nhwc", bn_stats_nhwc, pixels, lambda a: (cdiv(a["C"], a["BC"]),), {"BR": 64, "BC": 32}, num_warps=8),
    Case("welford_rows", welford_rows, long_rows, rows, {"B": 1024}),
    Case("colsum_f16", colsum, tall("fp16"), columns, {"BM": 64, "BN": 64}),
    Case("colsum_f32", colsum, tall("fp32"), columns, {"BM": 128, "BN": 32}, num_warps=8),
    Case("colmax_partial", colmax_partial, tall("fp32"), lambda a: tiles(a)[::-1], {"BM": 128, "BN": 64}),
    *(
        Case(f"reduce_3d_{axis}", reduce_3d, cubes(axis), rows, {"A": 16, "B": 16, "C": 32, "AXIS": axis})
        for axis in range(3)
    ),
    Case("layer_scale_bwd", layer_scale_bwd, scale_gradients, lambda a: (*columns(a), 16), {"BM": 16, "BN": 128}),
    Case("grid_stride_sum", grid_stride_sum, everything, lambda a: (264,), {"B": 1024}),
    Case("hist", hist, values, blocks, {"B": 4096, "BINS": 256}),
    Case("moe_align_count", moe_align_count, routed, blocks, {"E": 64, "B": 256}),
]
