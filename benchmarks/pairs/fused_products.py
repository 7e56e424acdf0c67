"""Products with more in them: gates, low ranks, experts, and softmax or a state on the fly."""

from __future__ import annotations

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv, tiles


@triton.jit
def softmax_mm(x, v, o, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Softmax of the rows of x by v, in one loop; no maximum is subtracted."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    acc = tl.zeros((BM, D), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for s in range(0, N, BN):
        n = s + tl.arange(0, BN)
        p = tl.exp(tl.load(x + m[:, None] * N + n[None, :]).to(tl.float32))
        total += tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), tl.load(v + n[:, None] * D + d[None, :]), acc)
    tl.store(o + m[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.bfloat16))


@triton.jit
def gated_mlp_mm(a, b1, b2, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    p = tl.zeros((BM, BN), tl.float32)
    q = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        p = tl.dot(x, tl.load(b1 + (s + k)[:, None] * N + n[None, :]), p)
        q = tl.dot(x, tl.load(b2 + (s + k)[:, None] * N + n[None, :]), q)
    tl.store(c + m[:, None] * N + n[None, :], (p * tl.sigmoid(p) * q).to(tl.bfloat16))


@triton.jit
def lora_mm(a, w, la, lb, c, M, N, K, R: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    r = tl.arange(0, R)
    acc = tl.zeros((BM, BN), tl.float32)
    low = tl.zeros((BM, R), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        acc = tl.dot(x, tl.load(w + (s + k)[:, None] * N + n[None, :]), acc)
        low = tl.dot(x, tl.load(la + (s + k)[:, None] * R + r[None, :]), low)
    acc = tl.dot(low.to(tl.bfloat16), tl.load(lb + r[:, None] * N + n[None, :]), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def moe_mm(
    a, b, c, ids, experts, weights, M, N, K, TOPK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    pm = tl.program_id(0)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    tok = tl.load(ids + pm * BM + tl.arange(0, BM)).to(tl.int64)
    ok = tok < M * TOPK
    e = tl.load(experts + pm).to(tl.int64)
    ap = a + (tok // TOPK)[:, None] * K + k[None, :]
    bp = b + e * N * K + n[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(tl.cdiv(K, BK)):
        x = tl.load(ap, mask=ok[:, None] & (k[None, :] < K - s * BK), other=0.0)
        y = tl.load(bp, mask=k[:, None] < K - s * BK, other=0.0)
        acc += tl.dot(x, y)
        ap += BK
        bp += BK
    w = tl.load(weights + tok, mask=ok, other=0.0)
    acc = acc * w[:, None]
    tl.store(c + tok[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=ok[:, None])


@triton.jit
def linear_attn(q, k, v, o, T, scale, D: tl.constexpr, DV: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr):
    """Causal linear attention in chunks of time, with the state in registers."""
    z = tl.program_id(1).to(tl.int64)
    vv = tl.program_id(0) * BV + tl.arange(0, BV)
    d = tl.arange(0, D)
    q += z * T * D
    k += z * T * D
    v += z * T * DV
    o += z * T * DV
    h = tl.zeros((D, BV), tl.float32)
    i = tl.arange(0, BT)
    for s in range(0, T, BT):
        t = s + i
        qq = tl.load(q + t[:, None] * D + d[None, :])
        kk = tl.load(k + t[None, :] * D + d[:, None])
        x = tl.load(v + t[:, None] * DV + vv[None, :])
        p = tl.dot(qq, kk) * scale
        p = tl.where(i[:, None] >= i[None, :], p, 0.0)
        y = tl.dot(p.to(x.dtype), x) + tl.dot(qq, h.to(qq.dtype)) * scale
        tl.store(o + t[:, None] * DV + vv[None, :], y.to(tl.bfloat16))
        h = tl.dot(kk, x, h)


def weighted(arrays: Arrays) -> Arguments:
    x, v = arrays.normal("bf16", 8192, 8192), arrays.normal("bf16", 8192, 128)
    return {"x": x, "v": v, "o": arrays.zeros("bf16", 8192, 128), "N": 8192}


def gated(arrays: Arrays) -> Arguments:
    m, n, k = 4096, 4096, 4096
    weights = {name: arrays.normal("bf16", k, n, scale=0.1) for name in ("b1", "b2")}
    return {"a": arrays.normal("bf16", m, k), **weights, "c": arrays.zeros("bf16", m, n), "M": m, "N": n, "K": k}


def low_rank(arrays: Arrays) -> Arguments:
    m, n, k, rank = 4096, 4096, 4096, 16
    low = {"la": arrays.normal("bf16", k, rank), "lb": arrays.normal("bf16", rank, n)}
    a, w = arrays.normal("bf16", m, k), arrays.normal("bf16", k, n)
    return {"a": a, "w": w, **low, "c": arrays.zeros("bf16", m, n), "M": m, "N": n, "K": k}


def experts(arrays: Arrays) -> Arguments:
    """Each of 2048 tokens goes to two of eight experts; 64 of them make a block."""
    m, n, k, number = 2048, 2048, 2048, 8
    return {
        "a": arrays.normal("bf16", m, k),
        "b": arrays.normal("bf16", number, n, k),
        "c": arrays.zeros("bf16", m * 2, n),
        "ids": arrays.permutation(m * 2),
        "experts": arrays.listed([block % number for block in range(m * 2 // 64)]),
        "weights": arrays.normal("fp32", m * 2),
        "M": m,
        "N": n,
        "K": k,
    }


def sequences(arrays: Arrays) -> Arguments:
    shape = (64, 4096, 128)
    given = {name: arrays.normal("bf16", *shape, scale=0.1) for name in ("q", "k", "v")}
    return {**given, "o": arrays.zeros("bf16", *shape), "T": 4096, "scale": 0.1}


CASES = [
    Case("softmax_mm", softmax_mm, weighted, lambda a: (a["x"].shape[0] // a["BM"],), {"D": 128, "BM": 64, "BN": 64}),
    Case("gated_mlp_mm", gated_mlp_mm, gated, tiles, {"BM": 128, "BN": 64, "BK": 64}, num_warps=8),
    Case("lora_mm", lora_mm, low_rank, tiles, {"R": 16, "BM": 128, "BN": 128, "BK": 64}, num_warps=8),
    Case(
        "moe_mm",
        moe_mm,
        experts,
        lambda a: (a["experts"].shape[0], cdiv(a["N"], a["BN"])),
        {"TOPK": 2, "BM": 64, "BN": 64, "BK": 32},
        num_stages=4,
    ),
    Case(
        "linear_attn",
        linear_attn,
        sequences,
        lambda a: (128 // a["BV"], a["q"].shape[0]),
        {"D": 128, "DV": 128, "BT": 64, "BV": 64},
        num_stages=2,
    ),
]
