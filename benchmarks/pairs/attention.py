"""Attention: decoding with pages and without products, windows, sequences of many lengths, a gradient."""

from __future__ import annotations

from itertools import accumulate

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv


@triton.jit
def gqa_paged(
    q,
    kc,
    vc,
    tab,
    lens,
    out,
    scale,
    stab,
    H: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    BH: tl.constexpr,
    PAGE: tl.constexpr,
    BN: tl.constexpr,
):
    b = tl.program_id(0)
    kv = tl.program_id(1)
    h = kv * (H // KV) + tl.arange(0, BH)
    okh = tl.arange(0, BH) < H // KV
    d = tl.arange(0, D)
    x = tl.load(q + (b * H + h)[:, None] * D + d[None, :], mask=okh[:, None], other=0.0)
    length = tl.load(lens + b)
    best = tl.zeros((BH,), tl.float32) - float("inf")
    total = tl.zeros((BH,), tl.float32)
    acc = tl.zeros((BH, D), tl.float32)
    for s in range(0, length, BN):
        n = s + tl.arange(0, BN)
        page = tl.load(tab + b * stab + n // PAGE, mask=n < length, other=0)
        loc = page * PAGE + n % PAGE
        kk = tl.load(kc + (loc[None, :] * KV + kv) * D + d[:, None], mask=n[None, :] < length, other=0.0)
        qk = tl.dot(x, kk) * scale
        qk = tl.where(okh[:, None] & (n[None, :] < length), qk, float("-inf"))
        vv = tl.load(vc + (loc[:, None] * KV + kv) * D + d[None, :], mask=n[:, None] < length, other=0.0)
        new = tl.maximum(tl.max(qk, 1), best)
        new = tl.where(okh, new, 0.0)
        f = tl.exp(best - new)
        p = tl.exp(qk - new[:, None])
        acc = acc * f[:, None] + tl.dot(p.to(vv.dtype), vv)
        total = total * f + tl.sum(p, 1)
        best = new
    tl.store(out + (b * H + h)[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16), mask=okh[:, None])


@triton.jit
def mha_decode_nodot(q, kc, vc, loc, lens, out, scale, sloc, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    """One query of each head, with sums in place of products."""
    b = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    x = tl.load(q + (b * H + h) * D + d)
    length = tl.load(lens + b)
    best = -float("inf")
    total = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s in range(0, length, BN):
        n = s + tl.arange(0, BN)
        at = tl.load(loc + b * sloc + n, mask=n < length, other=0)
        kk = tl.load(kc + (at[:, None] * H + h) * D + d[None, :], mask=n[:, None] < length, other=0.0)
        qk = tl.sum(x[None, :] * kk, 1).to(tl.float32) * scale
        qk = tl.where(n < length, qk, float("-inf"))
        vv = tl.load(vc + (at[:, None] * H + h) * D + d[None, :], mask=n[:, None] < length, other=0.0)
        new = tl.maximum(tl.max(qk, 0), best)
        f = tl.exp(best - new)
        p = tl.exp(qk - new)
        acc = acc * f + tl.sum(p[:, None] * vv, 0)
        total = total * f + tl.sum(p, 0)
        best = new
    tl.store(out + (b * H + h) * D + d, (acc / total).to(tl.float16))


@triton.jit
def window_attn(q, k, v, o, N, scale, W: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    bh = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * BM
    m = start + tl.arange(0, BM)
    d = tl.arange(0, D)
    q += bh * N * D
    k += bh * N * D
    v += bh * N * D
    o += bh * N * D
    x = tl.load(q + m[:, None] * D + d[None, :], mask=m[:, None] < N, other=0.0)
    best = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    lo = tl.maximum(start - W, 0) // BN * BN
    for s in range(lo, tl.minimum(start + BM, N), BN):
        n = s + tl.arange(0, BN)
        kk = tl.load(k + n[None, :] * D + d[:, None], mask=n[None, :] < N, other=0.0)
        qk = tl.dot(x, kk) * scale
        keep = (m[:, None] >= n[None, :]) & (m[:, None] - n[None, :] <= W)
        qk = tl.where(keep, qk, -1.0e6)
        new = tl.maximum(best, tl.max(qk, 1))
        p = tl.math.exp2(qk - new[:, None])
        f = tl.math.exp2(best - new)
        total = total * f + tl.sum(p, 1)
        acc = acc * f[:, None]
        vv = tl.load(v + n[:, None] * D + d[None, :], mask=n[:, None] < N, other=0.0)
        acc = tl.dot(p.to(vv.dtype), vv, acc)
        best = new
    tl.store(o + m[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16), mask=m[:, None] < N)


@triton.jit
def int8_attn(q, k, v, o, sq, sk, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """8-bit queries and keys with a scale a block; values in halves, each block summed up in halves."""
    bh = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    d = tl.arange(0, D)
    q, k, v, o = q + bh * N * D, k + bh * N * D, v + bh * N * D, o + bh * N * D
    kp, vp = k + n[None, :] * D + d[:, None], v + n[:, None] * D + d[None, :]
    x = tl.load(q + m[:, None] * D + d[None, :], mask=m[:, None] < N, other=0)
    scale = tl.load(sq + bh * tl.cdiv(N, BM) + tl.program_id(0))
    sk += bh * tl.cdiv(N, BN)
    best = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for s in range(0, N, BN):
        kk = tl.load(kp, mask=n[None, :] < N - s, other=0)
        qk = tl.dot(x, kk).to(tl.float32) * (scale * tl.load(sk))
        new = tl.maximum(best, tl.max(tl.where(n[None, :] < N - s, qk, float("-inf")), 1))
        p = tl.math.exp2(tl.where(n[None, :] < N - s, qk, float("-inf")) - new[:, None])
        f = tl.math.exp2(best - new)
        total = total * f + tl.sum(p, 1)
        vv = tl.load(vp, mask=n[:, None] < N - s, other=0.0)
        acc = acc * f[:, None]
        acc += tl.dot(p.to(tl.float16), vv, out_dtype=tl.float16)
        best = new
        kp += BN * D
        sk += 1
        vp += BN * D
    tl.store(o + m[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16), mask=m[:, None] < N)


@triton.jit
def varlen_attn(
    q, k, v, o, starts, scale, H: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    b = tl.program_id(2)
    h = tl.program_id(1)
    first = tl.load(starts + b)
    length = tl.load(starts + b + 1) - first
    base = tl.program_id(0) * BM
    if base >= length:
        return
    m = base + tl.arange(0, BM)
    d = tl.arange(0, D)
    x = tl.load(q + ((first + m)[:, None] * H + h) * D + d[None, :], mask=m[:, None] < length, other=0.0)
    best = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    kv = h // (H // KV)
    for s in range(0, tl.minimum(base + BM, length), BN):
        n = s + tl.arange(0, BN)
        kk = tl.load(k + ((first + n)[None, :] * KV + kv) * D + d[:, None], mask=n[None, :] < length, other=0.0)
        qk = tl.dot(x, kk) * scale
        qk = tl.where(m[:, None] >= n[None, :], qk, -1.0e8)
        new = tl.maximum(best, tl.max(qk, 1))
        p = tl.math.exp2(qk - new[:, None])
        f = tl.math.exp2(best - new)
        total = total * f + tl.sum(p, 1)
        acc = acc * f[:, None]
        vv = tl.load(v + ((first + n)[:, None] * KV + kv) * D + d[None, :], mask=n[:, None] < length, other=0.0)
        acc = tl.dot(p.to(vv.dtype), vv, acc)
        best = new
    tl.store(
        o + ((first + m)[:, None] * H + h) * D + d[None, :],
        (acc / total[:, None]).to(tl.float16),
        mask=m[:, None] < length,
    )


@triton.jit
def attn_bwd_dq(q, k, v, do, lse, delta, dq, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    z = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    off = z * N * D
    qq = tl.load(q + off + m[:, None] * D + d[None, :])
    dd = tl.load(do + off + m[:, None] * D + d[None, :])
    sums = tl.load(lse + z * N + m)
    de = tl.load(delta + z * N + m)
    acc = tl.zeros((BM, D), tl.float32)
    for s in range(0, N, BN):
        n = s + tl.arange(0, BN)
        kt = tl.load(k + off + n[None, :] * D + d[:, None])
        vt = tl.load(v + off + n[None, :] * D + d[:, None])
        p = tl.math.exp2(tl.dot(qq, kt) * scale - sums[:, None])
        ds = (p * (tl.dot(dd, vt) - de[:, None])).to(tl.float16)
        acc = tl.dot(ds, tl.trans(kt), acc)
    tl.store(dq + off + m[:, None] * D + d[None, :], (acc * scale).to(tl.float16))


LENGTHS = [3000, 500, 4096, 77, 2048, 1111, 8000, 900]


def pages(arrays: Arrays) -> Arguments:
    """64 sequences of up to 4096 tokens, 16 in a page, pages anywhere; 32 heads share 8."""
    batch, length, dim, page = 64, 4096, 128, 16
    each = length // page
    cache = {name: arrays.normal("fp16", batch * length, 8, dim) for name in ("kc", "vc")}
    return {
        "q": arrays.normal("fp16", batch, 32, dim),
        **cache,
        "tab": arrays.permutation(batch * each),
        "lens": arrays.listed([length - 3 * i for i in range(batch)]),
        "out": arrays.zeros("fp16", batch, 32, dim),
        "scale": 0.0883,
        "stab": each,
    }


def tokens(arrays: Arrays) -> Arguments:
    """32 sequences of up to 2048 tokens that lie anywhere."""
    batch, length, heads, dim = 32, 2048, 32, 128
    cache = {name: arrays.normal("fp16", batch * length, heads, dim) for name in ("kc", "vc")}
    return {
        "q": arrays.normal("fp16", batch, heads, dim),
        **cache,
        "loc": arrays.permutation(batch * length),
        "lens": arrays.listed([length - 3 * i for i in range(batch)]),
        "out": arrays.zeros("fp16", batch, heads, dim),
        "scale": 0.0883,
        "sloc": length,
    }


def long(arrays: Arrays) -> Arguments:
    shape = (32, 8192, 128)
    given = {name: arrays.normal("fp16", *shape) for name in ("q", "k", "v")}
    return {**given, "o": arrays.zeros("fp16", *shape), "N": 8192, "scale": 0.127}


def quantised(arrays: Arrays) -> Arguments:
    heads, n, dim = 64, 2048, 64
    whole = {name: arrays.integers("i8", -64, 64, heads, n, dim) for name in ("q", "k")}
    scales = {
        "sq": arrays.uniform("fp32", 0.01, 0.03, heads, n // 128),
        "sk": arrays.uniform("fp32", 0.01, 0.03, heads, n // 64),
    }
    halves = {"v": arrays.normal("fp16", heads, n, dim), "o": arrays.zeros("fp16", heads, n, dim)}
    return {**whole, **halves, **scales, "N": n}


def packed(arrays: Arrays) -> Arguments:
    starts = list(accumulate(LENGTHS, initial=0))
    k, v = (arrays.normal("fp16", starts[-1], 8, 128) for _ in range(2))
    q, o = arrays.normal("fp16", starts[-1], 32, 128), arrays.zeros("fp16", starts[-1], 32, 128)
    return {"q": q, "k": k, "v": v, "o": o, "starts": arrays.listed(starts), "scale": 0.127}


def gradients(arrays: Arrays) -> Arguments:
    batch, n, dim = 32, 4096, 128
    given = {name: arrays.normal("fp16", batch, n, dim, scale=0.3) for name in ("q", "k", "v", "do")}
    sums = {"lse": arrays.uniform("fp32", 7.0, 9.0, batch, n), "delta": arrays.normal("fp32", batch, n)}
    return {**given, **sums, "dq": arrays.zeros("fp16", batch, n, dim), "N": n, "scale": 0.127}


CASES = [
    Case(
        "gqa_paged",
        gqa_paged,
        pages,
        lambda a: (a["lens"].shape[0], 8),
        {"H": 32, "KV": 8, "D": 128, "BH": 16, "PAGE": 16, "BN": 64},
        num_stages=2,
    ),
    Case(
        "gqa_paged_four",
        gqa_paged,
        pages,
        lambda a: (a["lens"].shape[0], 8),
        {"H": 32, "KV": 8, "D": 128, "BH": 4, "PAGE": 16, "BN": 64},
        num_stages=2,
    ),
    Case(
        "mha_decode_nodot",
        mha_decode_nodot,
        tokens,
        lambda a: (a["lens"].shape[0], 32),
        {"H": 32, "D": 128, "BN": 32},
        num_stages=2,
    ),
    Case(
        "window_attn",
        window_attn,
        long,
        lambda a: (cdiv(a["N"], a["BM"]), a["q"].shape[0]),
        {"W": 1024, "D": 128, "BM": 128, "BN": 64},
        num_warps=8,
    ),
    Case(
        "int8_attn",
        int8_attn,
        quantised,
        lambda a: (cdiv(a["N"], a["BM"]), a["q"].shape[0]),
        {"D": 64, "BM": 128, "BN": 64},
        num_stages=3,
    ),
    Case(
        "varlen_attn",
        varlen_attn,
        packed,
        lambda a: (cdiv(max(LENGTHS), a["BM"]), 32, len(LENGTHS)),
        {"H": 32, "KV": 8, "D": 128, "BM": 128, "BN": 64},
        num_warps=8,
    ),
    Case(
        "attn_bwd_dq",
        attn_bwd_dq,
        gradients,
        lambda a: (a["N"] // a["BM"], a["q"].shape[0]),
        {"D": 128, "BM": 128, "BN": 64},
        num_warps=8,
        num_stages=2,
    ),
]
