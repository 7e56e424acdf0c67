"""Scans along rows, columns and time, with sums, segments and linear recurrences."""

from __future__ import annotations

from collections.abc import Callable

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, blocks, cdiv, rows


@triton.jit
def cumsum_1d(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.cumsum(tl.load(x + i, mask=i < n, other=0.0), 0), mask=i < n)


@triton.jit
def cumsum_2d(x, y, BR: tl.constexpr, BC: tl.constexpr, AXIS: tl.constexpr, REV: tl.constexpr):
    at = tl.program_id(0) * BR * BC + tl.arange(0, BR)[:, None] * BC + tl.arange(0, BC)[None, :]
    tl.store(y + at, tl.cumsum(tl.load(x + at), AXIS, reverse=REV))


@triton.jit
def cumsum_rows(x, y, N, B: tl.constexpr):
    r = tl.program_id(0)
    carry = 0.0
    for s in range(0, N, B):
        c = s + tl.arange(0, B)
        v = tl.load(x + r * N + c, mask=c < N, other=0.0)
        tl.store(y + r * N + c, carry + tl.cumsum(v, 0), mask=c < N)
        carry += tl.sum(v, 0)


@triton.jit
def cumsum_cols(x, y, T, S, BT: tl.constexpr, BS: tl.constexpr):
    """Cumulative sums along time in chunks, with a carried row."""
    c = tl.program_id(0) * BS + tl.arange(0, BS)
    b = tl.program_id(1)
    x += b * T * S
    y += b * T * S
    carry = tl.zeros((BS,), tl.float32)
    for s in range(0, T, BT):
        t = s + tl.arange(0, BT)
        ok = (t[:, None] < T) & (c[None, :] < S)
        v = tl.load(x + t[:, None] * S + c[None, :], mask=ok, other=0.0).to(tl.float32)
        tl.store(y + t[:, None] * S + c[None, :], carry[None, :] + tl.cumsum(v, 0), mask=ok)
        carry += tl.sum(v, 0)


@triton.jit
def _seg(a, fa, b, fb):
    return tl.where(fb != 0, b, a + b), fa | fb


@triton.jit
def seg_scan(x, f, y, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < N, other=0.0)
    g = tl.load(f + i, mask=i < N, other=0)
    s, _ = tl.associative_scan((v, g), 0, _seg)
    tl.store(y + i, s, mask=i < N)


@triton.jit
def _lin(a0, b0, a1, b1):
    return a0 * a1, b0 * a1 + b1


@triton.jit
def ssm_scan(a, b, y, T, S, BT: tl.constexpr, BS: tl.constexpr):
    c = tl.program_id(0) * BS + tl.arange(0, BS)
    z = tl.program_id(1)
    base = z * T * S
    state = tl.zeros((BS,), tl.float32)
    for s in range(0, T, BT):
        t = s + tl.arange(0, BT)
        at = base + t[:, None] * S + c[None, :]
        aa = tl.load(a + at)
        bb = tl.load(b + at)
        p, h = tl.associative_scan((aa, bb), 0, _lin)
        h += p * state[None, :]
        tl.store(y + at, h)
        state = tl.sum(tl.where((tl.arange(0, BT) == BT - 1)[:, None], h, 0.0), 0)


@triton.jit
def ssm_step(u, delta, A, Bm, Cm, Dv, o, L, DI, NS: tl.constexpr, BD: tl.constexpr):
    """A selective state space, step after step in time."""
    b = tl.program_id(1)
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    n = tl.arange(0, NS)
    h = tl.zeros((BD, NS), tl.float32)
    a = tl.load(A + d[:, None] * NS + n[None, :])
    dd = tl.load(Dv + d)
    for t in range(L):
        x = tl.load(u + (b * L + t) * DI + d).to(tl.float32)
        dt = tl.load(delta + (b * L + t) * DI + d).to(tl.float32)
        dt = tl.where(dt <= 20.0, tl.log(1.0 + tl.exp(dt)), dt)
        bb = tl.load(Bm + (b * L + t) * NS + n).to(tl.float32)
        cc = tl.load(Cm + (b * L + t) * NS + n).to(tl.float32)
        h = tl.exp(dt[:, None] * a) * h + (dt * x)[:, None] * bb[None, :]
        tl.store(o + (b * L + t) * DI + d, (tl.sum(h * cc[None, :], 1) + dd * x).to(tl.bfloat16))


def line(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("fp32", 1 << 24), "y": arrays.zeros("fp32", 1 << 24), "n": 1 << 24}


def tiles_of(height: int, width: int) -> Callable[[Arrays], Arguments]:
    return lambda arrays: {
        "x": arrays.normal("fp32", 8192, height, width),
        "y": arrays.zeros("fp32", 8192, height, width),
    }


def long_rows(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("fp32", 8192, 8192), "y": arrays.zeros("fp32", 8192, 8192), "N": 8192}


def in_time(arrays: Arrays) -> Arguments:
    shape = (16, 4096, 1024)
    return {"x": arrays.normal("fp32", *shape), "y": arrays.zeros("fp32", *shape), "T": 4096, "S": 1024}


def segments(arrays: Arrays) -> Arguments:
    n = 1 << 25
    return {"x": arrays.normal("fp32", n), "f": arrays.integers("i32", 0, 2, n), "y": arrays.zeros("fp32", n), "N": n}


def recurrence(arrays: Arrays) -> Arguments:
    shape = (16, 4096, 1024)
    a, b = arrays.uniform("fp32", 0.0, 0.99, *shape), arrays.normal("fp32", *shape)
    return {"a": a, "b": b, "y": arrays.zeros("fp32", *shape), "T": 4096, "S": 1024}


def selective(arrays: Arrays) -> Arguments:
    batch, length, inner, states = 8, 1024, 2048, 16
    return {
        **{name: arrays.normal("bf16", batch, length, inner) for name in ("u", "delta")},
        "A": arrays.uniform("fp32", -2.0, 0.0, inner, states),
        **{name: arrays.normal("bf16", batch, length, states) for name in ("Bm", "Cm")},
        "Dv": arrays.normal("fp32", inner),
        "o": arrays.zeros("bf16", batch, length, inner),
        "L": length,
        "DI": inner,
    }


CASES = [
    Case("cumsum_1d_1024", cumsum_1d, line, blocks, {"B": 1024}),
    Case("cumsum_1d_4096", cumsum_1d, line, blocks, {"B": 4096}, num_warps=8),
    Case("cumsum_1d_16384", cumsum_1d, line, blocks, {"B": 16384}, num_warps=16),
    Case("cumsum_2d_rows", cumsum_2d, tiles_of(16, 256), rows, {"BR": 16, "BC": 256, "AXIS": 1, "REV": False}),
    Case(
        "cumsum_2d_rows2",
        cumsum_2d,
        tiles_of(2, 2048),
        rows,
        {"BR": 2, "BC": 2048, "AXIS": 1, "REV": True},
        num_warps=8,
    ),
    Case("cumsum_2d_cols", cumsum_2d, tiles_of(64, 64), rows, {"BR": 64, "BC": 64, "AXIS": 0, "REV": False}),
    Case(
        "cumsum_2d_cols8", cumsum_2d, tiles_of(512, 8), rows, {"BR": 512, "BC": 8, "AXIS": 0, "REV": False}, num_warps=8
    ),
    Case("cumsum_rows", cumsum_rows, long_rows, rows, {"B": 2048}),
    Case("cumsum_cols", cumsum_cols, in_time, lambda a: (cdiv(a["S"], a["BS"]), a["x"].shape[0]), {"BT": 64, "BS": 32}),
    Case("seg_scan", seg_scan, segments, lambda a: (cdiv(a["N"], a["B"]),), {"B": 2048}),
    Case("ssm_scan", ssm_scan, recurrence, lambda a: (a["S"] // a["BS"], a["a"].shape[0]), {"BT": 64, "BS": 32}),
    Case(
        "ssm_step",
        ssm_step,
        selective,
        lambda a: (a["DI"] // a["BD"], a["u"].shape[0]),
        {"NS": 16, "BD": 32},
        num_warps=1,
    ),
]
