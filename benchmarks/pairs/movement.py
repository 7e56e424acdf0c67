"""Elements that go elsewhere: transposed, permuted, gathered, scattered, added by index."""

from __future__ import annotations

from collections.abc import Callable

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv, rows, tiles


@triton.jit
def transpose(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (m[:, None] < M) & (n[None, :] < N)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=ok)
    tl.store(y + n[:, None] * M + m[None, :], tl.trans(v), mask=(n[:, None] < N) & (m[None, :] < M))


@triton.jit
def transpose_implicit(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (m[:, None] < M) & (n[None, :] < N)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=ok)
    tl.store(y + m[:, None] + n[None, :] * M, v, mask=ok)


@triton.jit
def permute_0213(x, y, A, B, C, D: tl.constexpr, BB: tl.constexpr):
    """(A, B, C, D) -> (A, C, B, D)"""
    ac = tl.program_id(1)
    a = ac // C
    c = ac % C
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    d = tl.arange(0, D)
    v = tl.load(x + ((a * B + b[:, None]) * C + c) * D + d[None, :], mask=b[:, None] < B)
    tl.store(y + ((a * C + c) * B + b[:, None]) * D + d[None, :], v, mask=b[:, None] < B)


@triton.jit
def permute_flat(x, y, n, A, B, C, BLOCK: tl.constexpr):
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = i % C
    b = (i // C) % B
    a = i // (B * C)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + (b * A + a) * C + c, v, mask=i < n)


@triton.jit
def flip_rows(x, y, N: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, N)
    tl.store(y + r * N + c, tl.flip(tl.load(x + r * N + c), 0))


@triton.jit
def tl_gather(x, idx, o, R: tl.constexpr, C: tl.constexpr):
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    at = tl.program_id(0) * R * C + r[:, None] * C + c[None, :]
    v = tl.load(x + at)
    i = tl.load(idx + at)
    tl.store(o + at, tl.gather(v, i, 1))


@triton.jit
def embed_gather(ids, w, o, D, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.load(ids + r).to(tl.int64)
    for s in range(0, D, B):
        c = s + tl.arange(0, B)
        tl.store(o + r.to(tl.int64) * D + c, tl.load(w + i * D + c, mask=c < D, other=0.0), mask=c < D)


@triton.jit
def embed_backward(ids, dy, dw, n, D, BR: tl.constexpr, BD: tl.constexpr, SEM: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BD + tl.arange(0, BD)
    ok = (r[:, None] < n) & (c[None, :] < D)
    i = tl.load(ids + r, mask=r < n, other=0)
    v = tl.load(dy + r[:, None] * D + c[None, :], mask=ok, other=0.0)
    tl.atomic_add(dw + i[:, None] * D + c[None, :], v, mask=ok, sem=SEM)


@triton.jit
def gather_where(x, idx, w, o, N, K: tl.constexpr, D, BD: tl.constexpr):
    """Weighted sums of the rows that a table names, as experts are combined."""
    r = tl.program_id(0)
    c = tl.program_id(1) * BD + tl.arange(0, BD)
    acc = tl.zeros((BD,), tl.float32)
    for j in range(K):
        i = tl.load(idx + r * K + j)
        ww = tl.load(w + r * K + j)
        if i >= 0:
            acc += tl.load(x + i.to(tl.int64) * D + c, mask=c < D, other=0.0).to(tl.float32) * ww
    tl.store(o + r * D + c, acc.to(tl.bfloat16), mask=c < D)


@triton.jit
def kv_write(k, cache, slots, stride, HD: tl.constexpr, BT: tl.constexpr, n):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    c = tl.arange(0, HD)
    s = tl.load(slots + t, mask=t < n, other=-1)
    v = tl.load(k + t[:, None] * stride + c[None, :], mask=t[:, None] < n, other=0.0)
    tl.store(cache + s[:, None].to(tl.int64) * HD + c[None, :], v, mask=(s >= 0)[:, None])


def square(kind: str) -> Callable[[Arrays], Arguments]:
    def arguments(arrays: Arrays) -> Arguments:
        m, n = 8192, 8192
        x = arrays.integers("i8", -99, 99, m, n) if kind == "i8" else arrays.normal(kind, m, n)
        return {"x": x, "y": arrays.zeros(kind, n, m), "M": m, "N": n}

    return arguments


def heads(arrays: Arrays) -> Arguments:
    a, b, c, d = 16, 2048, 32, 128
    return {"x": arrays.normal("fp16", a, b, c, d), "y": arrays.zeros("fp16", a, c, b, d), "A": a, "B": b, "C": c}


def uneven(arrays: Arrays) -> Arguments:
    a, b, c = 512, 512, 96
    x, y = arrays.normal("fp32", a, b, c), arrays.zeros("fp32", b, a, c)
    return {"x": x, "y": y, "n": a * b * c, "A": a, "B": b, "C": c}


def flipped(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("fp32", 32768, 2048), "y": arrays.zeros("fp32", 32768, 2048)}


def picked(arrays: Arrays) -> Arguments:
    shape = (16384, 32, 128)
    x, index = arrays.normal("fp32", *shape), arrays.integers("i32", 0, 128, *shape)
    return {"x": x, "idx": index, "o": arrays.zeros("fp32", *shape)}


def embedding(arrays: Arrays) -> Arguments:
    r, v, d = 32768, 50000, 4096
    ids, w = arrays.integers("i64", 0, v, r), arrays.normal("bf16", v, d)
    return {"ids": ids, "w": w, "o": arrays.zeros("bf16", r, d), "D": d}


def embedding_gradient(kind: str) -> Callable[[Arrays], Arguments]:
    def arguments(arrays: Arrays) -> Arguments:
        r, v, d = 16384, 50000, 1024
        ids, dy = arrays.integers("i32", 0, v, r), arrays.normal(kind, r, d)
        return {"ids": ids, "dy": dy, "dw": arrays.zeros(kind, v, d), "n": r, "D": d}

    return arguments


def combined(arrays: Arrays) -> Arguments:
    """Up to eight rows of x for each result: an index below 0 names none."""
    r, d = 16384, 4096
    x, index, w = arrays.normal("bf16", r * 4, d), arrays.integers("i32", -1, r * 4, r, 8), arrays.normal("fp32", r, 8)
    return {"x": x, "idx": index, "w": w, "o": arrays.zeros("bf16", r, d), "N": r, "D": d}


def slots(arrays: Arrays) -> Arguments:
    n, width = 16384, 1024
    k, cache = arrays.normal("bf16", n, width), arrays.zeros("bf16", n, width)
    return {"k": k, "cache": cache, "slots": arrays.listed(range(n)), "stride": width, "n": n}


def by_ids(a: Arguments) -> tuple[int, ...]:
    return cdiv(a["n"], a["BR"]), cdiv(a["D"], a["BD"])


SQUARE = {"BM": 64, "BN": 64}
CASES = [
    Case("transpose_f32", transpose, square("fp32"), tiles, SQUARE),
    Case("transpose_f16", transpose, square("fp16"), tiles, SQUARE),
    Case("transpose_f8", transpose, square("i8"), tiles, {"BM": 128, "BN": 64}),
    Case("transpose_implicit_f16", transpose_implicit, square("fp16"), tiles, SQUARE),
    Case("permute_0213", permute_0213, heads, lambda a: (cdiv(a["B"], a["BB"]), a["A"] * a["C"]), {"D": 128, "BB": 32}),
    Case("permute_flat", permute_flat, uneven, lambda a: (cdiv(a["n"], a["BLOCK"]),), {"BLOCK": 1024}),
    Case("flip_rows", flip_rows, flipped, rows, {"N": 2048}),
    Case("tl_gather", tl_gather, picked, rows, {"R": 32, "C": 128}),
    Case("embed_gather", embed_gather, embedding, lambda a: (a["ids"].shape[0],), {"B": 1024}),
    Case("embed_backward", embed_backward, embedding_gradient("fp32"), by_ids, {"BR": 16, "BD": 128, "SEM": "acq_rel"}),
    Case(
        "embed_backward_f16",
        embed_backward,
        embedding_gradient("fp16"),
        by_ids,
        {"BR": 16, "BD": 128, "SEM": "relaxed"},
    ),
    Case("gather_where", gather_where, combined, lambda a: (a["N"], cdiv(a["D"], a["BD"])), {"K": 8, "BD": 1024}),
    Case("kv_write", kv_write, slots, lambda a: (cdiv(a["n"], a["BT"]),), {"HD": 1024, "BT": 4}),
]
