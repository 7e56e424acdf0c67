"""The largest of rows, their places, and sorted rows."""

from __future__ import annotations

from collections.abc import Callable

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv, rows


@triton.jit
def argmax_rows(x, o, N, B: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    best = float("-inf")
    at = 0
    for s in range(0, N, B):
        c = s + tl.arange(0, B)
        v = tl.load(x + r * N + c, mask=c < N, other=float("-inf")).to(tl.float32)
        m, i = tl.max(v, 0, return_indices=True)
        at = tl.where(m > best, s + i, at)
        best = tl.maximum(best, m)
    tl.store(o + r, at)


@triton.jit
def argmax_2d(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N), other=float("-inf"))
    tl.store(o + m, tl.argmax(v, 1), mask=m < M)


@triton.jit
def topk_route(x, w, ids, E, stride, TOPK: tl.constexpr, BE: tl.constexpr):
    r = tl.program_id(0)
    e = tl.arange(0, BE)
    v = tl.load(x + r * stride + e, mask=e < E, other=float("-inf")).to(tl.float32)
    v = tl.exp(v - tl.max(v, 0))
    v = v / tl.sum(v, 0)
    for i in tl.static_range(TOPK):
        best, at = tl.max(v, 0, return_indices=True)
        tl.store(w + r * TOPK + i, best)
        tl.store(ids + r * TOPK + i, at)
        v = tl.where(e == at, -1.0, v)


@triton.jit
def topk_rows(x, w, ids, E: tl.constexpr, TOPK: tl.constexpr, BR: tl.constexpr):
    """Values and places packed into 64 bits, of which the largest are taken."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    e = tl.arange(0, E)
    v = tl.load(x + r[:, None] * E + e[None, :]).to(tl.float32)
    bits = v.to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    packed = (key << 32) | (E - 1 - e)[None, :].to(tl.int64)
    top = tl.topk(packed, TOPK, 1)
    i = tl.arange(0, TOPK)
    tl.store(ids + r[:, None] * TOPK + i[None, :], (E - 1 - (top & 0xFFFFFFFF)).to(tl.int32))
    k2 = (top >> 32).to(tl.int32)
    k2 = tl.where(k2 < 0, k2 ^ 0x7FFFFFFF, k2)
    tl.store(w + r[:, None] * TOPK + i[None, :], k2.to(tl.float32, bitcast=True))


@triton.jit
def sort_rows(x, y, N: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, N)
    tl.store(y + r * N + c, tl.sort(tl.load(x + r * N + c)))


def vocabulary(kind: str) -> Callable[[Arrays], Arguments]:
    return lambda arrays: {"x": arrays.normal(kind, 4096, 128256), "o": arrays.zeros("i32", 4096), "N": 128256}


def short(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("fp32", 65536, 512), "o": arrays.zeros("i32", 65536), "M": 65536, "N": 512}


def experts(arrays: Arrays) -> Arguments:
    r = 65536
    return {"x": arrays.normal("bf16", r, 128), "w": arrays.zeros("fp32", r, 8), "ids": arrays.zeros("i32", r, 8)}


def strided_experts(arrays: Arrays) -> Arguments:
    return {**experts(arrays), "E": 128, "stride": 128}


def unsorted(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("fp32", 16384, 1024), "y": arrays.zeros("fp32", 16384, 1024)}


CASES = [
    Case("argmax_rows", argmax_rows, vocabulary("fp32"), rows, {"B": 4096}),
    Case("argmax_rows_bf16", argmax_rows, vocabulary("bf16"), rows, {"B": 4096}),
    Case("argmax_2d", argmax_2d, short, lambda a: (cdiv(a["M"], a["BM"]),), {"BM": 8, "BN": 512}),
    Case("topk_route", topk_route, strided_experts, rows, {"TOPK": 8, "BE": 128}, num_warps=1),
    Case("topk_rows", topk_rows, experts, lambda a: (a["x"].shape[0] // a["BR"],), {"E": 128, "TOPK": 8, "BR": 16}),
    Case("sort_rows", sort_rows, unsorted, rows, {"N": 1024}),
]
