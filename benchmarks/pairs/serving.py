"""What serving does around its large products: quantised gates, parts of attention that are combined, routers, weights
with scales and zeros of groups."""

from __future__ import annotations

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv


@triton.jit
def gate_to_fp8(x, q, sc, counts, T, H, G: tl.constexpr, STAGES: tl.constexpr):
    """SiLU of one half times the other, by groups with a scale each; a program takes a group of all tokens."""
    groups = H // G
    expert, group = (tl.program_id(0) // groups).to(tl.int64), tl.program_id(0) % groups
    c = group * G + tl.arange(0, G)
    x += expert * T * 2 * H
    q += expert * T * H
    sc += expert * T * groups
    for t in tl.range(0, tl.load(counts + expert), num_stages=STAGES):
        gate = tl.load(x + t * 2 * H + c).to(tl.float32)
        y = gate * tl.sigmoid(gate) * tl.load(x + t * 2 * H + H + c).to(tl.float32)
        s = tl.maximum(tl.max(tl.abs(y)), 1e-10) / 448.0
        tl.store(q + t * H + c, tl.clamp(y / s, -448.0, 448.0).to(tl.float8e4nv))
        tl.store(sc + t * groups + group, s)


@triton.jit
def combine_parts(parts, logs, lens, o, heads, D: tl.constexpr, SPLITS: tl.constexpr):
    """The second half of decoding: what parts of a sequence came to; short sequences leave parts empty."""
    b, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    length = tl.load(lens + b)
    each = tl.cdiv(length, SPLITS)
    best, total = -float("inf"), 0.0
    acc = tl.zeros((D,), tl.float32)
    for s in range(SPLITS):
        if s * each < length:
            place = (b * heads + h) * SPLITS + s
            row = tl.load(parts + place * D + d)
            log = tl.load(logs + place)
            new = tl.maximum(best, log)
            old, w = tl.exp(best - new), tl.exp(log - new)
            acc = acc * old + row * w
            total = total * old + w
            best = new
    tl.store(o + (b * heads + h) * D + d, (acc / total).to(tl.bfloat16))


@triton.jit
def router(x, w, weights, ids, K, E: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """The best expert of each token and how sure it is; activations and weights are widened first."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, E), tl.arange(0, BK)
    acc = tl.zeros((BM, E), tl.float32)
    for s in range(0, K, BK):
        a = tl.load(x + m[:, None] * K + (s + k)[None, :]).to(tl.float32)
        b = tl.load(w + n[:, None] * K + (s + k)[None, :]).to(tl.float32)
        acc += tl.dot(a, b.T)
    best = tl.max(acc, 1)
    tl.store(weights + m, 1.0 / tl.sum(tl.exp(acc - best[:, None]), 1))
    tl.store(ids + m, tl.argmax(acc, 1))


@triton.jit
def w8_groups_mm(
    a, b, sc, zeros, tokens, experts, c, N, K: tl.constexpr, G: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A mixture of experts with 8-bit weights along K, and a scale and a zero for G of them."""
    columns = tl.cdiv(N, BN)
    pid_m, pid_n = tl.program_id(0) // columns, tl.program_id(0) % columns
    row = tl.load(tokens + pid_m * BM + tl.arange(0, BM)).to(tl.int64)
    expert = tl.load(experts + pid_m).to(tl.int64)
    n, k = (pid_n * BN + tl.arange(0, BN)) % N, tl.arange(0, BK)
    ap = a + row[:, None] * K + k[None, :]
    bp = b + expert * N * K + n[None, :] * K + k[:, None]
    groups = expert * N * (K // G) + n[None, :] * (K // G)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(K // BK):
        group = groups + (k[:, None] + s * BK) // G
        x, w = tl.load(ap), tl.load(bp).to(tl.float32)
        w = (w - tl.load(zeros + group).to(tl.float32)) * tl.load(sc + group).to(tl.float32)
        acc = tl.dot(x, w.to(tl.bfloat16), acc)
        ap += BK
        bp += BK
    tl.store(c + (pid_m * BM + tl.arange(0, BM))[:, None] * N + n[None, :], acc.to(tl.bfloat16))


def gates(arrays: Arrays) -> Arguments:
    experts, tokens, hidden, group = 32, 256, 2048, 128
    return {
        "x": arrays.normal("bf16", experts, tokens, 2 * hidden),
        "q": arrays.zeros("fp8e4nv", experts, tokens, hidden),
        "sc": arrays.zeros("fp32", experts, tokens, hidden // group),
        "counts": arrays.listed([128 + 4 * e for e in range(experts)]),
        "T": tokens,
        "H": hidden,
    }


def parts_of_sequences(arrays: Arrays) -> Arguments:
    batch, heads, splits, dim = 16, 32, 32, 128
    return {
        "parts": arrays.normal("fp32", batch, heads, splits, dim),
        "logs": arrays.normal("fp32", batch, heads, splits),
        "lens": arrays.listed([7 + 61 * b for b in range(batch)]),
        "o": arrays.zeros("bf16", batch, heads, dim),
        "heads": heads,
    }


def gating(arrays: Arrays) -> Arguments:
    tokens, experts, k = 2048, 16, 4096
    return {
        "x": arrays.normal("bf16", tokens, k),
        "w": arrays.normal("bf16", experts, k, scale=0.02),
        "weights": arrays.zeros("fp32", tokens),
        "ids": arrays.zeros("i32", tokens),
        "K": k,
    }


def grouped_bytes(arrays: Arrays) -> Arguments:
    tokens, experts, n, k, group = 512, 8, 1536, 2048, 64
    return {
        "a": arrays.normal("bf16", tokens, k),
        "b": arrays.integers("u8", 0, 256, experts, n, k),
        "sc": arrays.normal("bf16", experts, n, k // group, scale=0.01),
        "zeros": arrays.integers("u8", 120, 136, experts, n, k // group),
        "tokens": arrays.permutation(tokens),
        "experts": arrays.listed([block % experts for block in range(tokens // 16)]),
        "c": arrays.zeros("bf16", tokens, n),
        "N": n,
    }


CASES = [
    Case(
        "gate_to_fp8",
        gate_to_fp8,
        gates,
        lambda a: (a["x"].shape[0] * a["H"] // a["G"],),
        {"G": 128, "STAGES": 4},
        num_warps=1,
    ),
    Case(
        "combine_parts",
        combine_parts,
        parts_of_sequences,
        lambda a: (a["lens"].shape[0], a["heads"]),
        {"D": 128, "SPLITS": 32},
        num_stages=2,
    ),
    Case("router", router, gating, lambda a: (a["x"].shape[0] // a["BM"],), {"E": 16, "BM": 32, "BK": 256}),
    Case(
        "w8_groups_mm",
        w8_groups_mm,
        grouped_bytes,
        lambda a: (a["experts"].shape[0] * cdiv(a["N"], a["BN"]),),
        {"K": 2048, "G": 64, "BM": 16, "BN": 64, "BK": 64},
        num_stages=4,
    ),
]
