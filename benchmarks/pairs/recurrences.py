"""Sequences that few programs walk through step by step, chunks of them, and sums and quotients of many rows."""

from __future__ import annotations

from collections.abc import Callable

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv


@triton.jit
def delta_rule(q, k, v, decay, beta, out, last, T, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr):
    """What a state says of each step's key is corrected by what the step brings."""
    head, part = tl.program_id(1), tl.program_id(0)
    rows, columns = tl.arange(0, K), part * BV + tl.arange(0, BV)
    state = tl.zeros((K, BV), tl.float32)
    q += head * T * K + rows
    k += head * T * K + rows
    v += head * T * V + columns
    out += head * T * V + columns
    for t in range(T):
        key = tl.load(k + t * K).to(tl.float32)
        state *= tl.exp(tl.load(decay + (head * T + t) * K + rows).to(tl.float32))[:, None]
        change = tl.load(v + t * V).to(tl.float32) - tl.sum(state * key[:, None], 0)
        state += key[:, None] * (change * tl.load(beta + head * T + t))[None, :]
        query = tl.load(q + t * K).to(tl.float32)
        tl.store(out + t * V, tl.sum(state * query[:, None], 0).to(out.dtype.element_ty))
    tl.store(last + head * K * V + rows[:, None] * V + columns[None, :], state)


@triton.jit
def linear_attention_steps(q, k, v, out, T, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr):
    """A state adds up keys and values; pointers walk."""
    head, part = tl.program_id(1), tl.program_id(0)
    rows, columns = tl.arange(0, K), part * BV + tl.arange(0, BV)
    state = tl.zeros((BV, K), tl.float32)
    at_q, at_k = q + head * T * K + rows, k + head * T * K + rows
    at_v, at_out = v + head * T * V + columns, out + head * T * V + columns
    for _t in range(T):
        state += tl.load(at_v).to(tl.float32)[:, None] * tl.load(at_k).to(tl.float32)[None, :]
        said = tl.sum(state * tl.load(at_q).to(tl.float32)[None, :], 1)
        tl.store(at_out, said.to(out.dtype.element_ty))
        at_q += K
        at_k += K
        at_v += V
        at_out += V


@triton.jit
def tall_sums(x, scale, out, M, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Columns of partial sums, by few programs that hold thousands of rows each."""
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for start in range(0, M, BM):
        rows = start + tl.arange(0, BM)
        places = rows[:, None].to(tl.int64) * N + columns[None, :]
        total += tl.sum(tl.load(x + places, mask=rows[:, None] < M, other=0.0), 0)
    tl.store(out + columns, total * tl.load(scale + columns))


@triton.jit
def divergence(x, y, loss, grad, N, count, B: tl.constexpr):
    """Jensen-Shannon's of rows of log-probabilities, and the gradient of one of them."""
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, N, B):
        c = start + tl.arange(0, B)
        at = row * N + c
        left = tl.load(x + at, mask=c < N, other=float("-inf")).to(tl.float32)
        right = tl.load(y + at, mask=c < N, other=float("-inf")).to(tl.float32)
        top = tl.maximum(tl.max(left), tl.max(right))
        p, q = tl.exp(left - top) * tl.exp(top) * 0.5, tl.exp(right - top) * tl.exp(top) * 0.5
        middle = tl.log(p + q)
        tl.store(loss + at, (p * (left - middle) + q * (right - middle)) / count, mask=c < N)
        tl.store(grad + at, p * (left - middle) / count, mask=c < N)


@triton.jit
def grouped_convolution(
    x, w, out, B, H, W, HO, WO,
    G: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, R: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """As a product, whose rows are pixels: quotients of a pixel's number say where it is."""
    group = tl.program_id(2)
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    image, py, px = m // WO // HO, m // WO % HO, m % WO
    sums = tl.zeros((BM, BN), tl.float32)
    for step in range(R * S * (CI // BK)):
        c = step % (CI // BK) * BK + tl.arange(0, BK)
        tap = step // (CI // BK)
        iy, ix = py * STRIDE + tap // S, px * STRIDE + tap % S
        inside = (image < B) & (iy < H) & (ix < W)
        at = ((image * G + group) * CI * H + iy) * W + ix
        a = tl.load(x + at[:, None] + (c * H * W)[None, :], mask=inside[:, None], other=0.0)
        at_w = ((group * CO + n) * CI)[None, :] * (R * S) + (c * (R * S) + tap)[:, None]
        sums += tl.dot(a, tl.load(w + at_w, mask=(n < CO)[None, :], other=0.0))
    to = ((image * G + group) * CO * HO + py) * WO + px
    tl.store(out + to[:, None] + (n * HO * WO)[None, :], sums.to(out.dtype.element_ty),
             mask=(image < B)[:, None] & (n < CO)[None, :])  # fmt: skip


@triton.jit
def chunk_gradients(
    q, k, v, g, h, dh, do, dq, dk, dg, T,
    K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Of the queries and keys of one chunk through the states before and behind it, in two turns."""
    chunk, part, head = tl.program_id(1), tl.program_id(0), tl.program_id(2)
    rows, columns = chunk * BT + tl.arange(0, BT), part * BK + tl.arange(0, BK)
    at = head * T * K + rows[:, None] * K + columns[None, :]
    ok = (rows < T)[:, None]
    gates = tl.load(g + at, mask=ok, other=0.0)
    of_q, of_k = tl.zeros((BT, BK), tl.float32), tl.zeros((BT, BK), tl.float32)
    states = (head * tl.num_programs(1) + chunk) * K * V
    for start in range(0, V, BV):
        values = start + tl.arange(0, BV)
        at_v = head * T * V + rows[:, None] * V + values[None, :]
        at_h = states + values[:, None] * K + columns[None, :]
        of_q += tl.dot(tl.load(do + at_v, mask=ok, other=0.0), tl.load(h + at_h))
        of_k += tl.dot(tl.load(v + at_v, mask=ok, other=0.0), tl.load(dh + at_h))
    of_q *= tl.exp(gates)
    of_k *= tl.exp(-gates)
    change = tl.load(q + at, mask=ok, other=0.0) * of_q - tl.load(k + at, mask=ok, other=0.0) * of_k
    tl.store(dq + at, of_q, mask=ok)
    tl.store(dk + at, of_k, mask=ok)
    tl.store(dg + at, change - tl.cumsum(change, 0) + tl.sum(change, 0)[None, :], mask=ok)


def sequences(kind: str, heads: int, t: int, k: int, v: int, *, gated: bool) -> Callable[[Arrays], Arguments]:
    def make(arrays: Arrays) -> Arguments:
        given = {name: arrays.normal(kind, heads, t, k, scale=k**-0.5) for name in ("q", "k")}
        given["v"] = arrays.normal(kind, heads, t, v)
        if gated:
            given["decay"] = arrays.uniform("fp32", -0.1, 0.0, heads, t, k)
            given["beta"] = arrays.uniform("fp32", 0.1, 0.9, heads, t)
            given["last"] = arrays.zeros("fp32", heads, k, v)
        return given | {"out": arrays.zeros(kind, heads, t, v), "T": t}

    return make


def parts(a: Arguments) -> tuple[int, ...]:
    return a["V"] // a["BV"], a["q"].shape[0]


def partial_sums(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("fp32", 4000, 4096), "scale": arrays.normal("fp32", 4096),
            "out": arrays.zeros("fp32", 4096), "M": 4000}  # fmt: skip


def log_probabilities(kind: str) -> Callable[[Arrays], Arguments]:
    def make(arrays: Arrays) -> Arguments:
        given = {name: arrays.uniform(kind, -12.0, -2.0, 8192, 1271) for name in ("x", "y")}
        given |= {name: arrays.zeros("fp32", 8192, 1271) for name in ("loss", "grad")}
        return given | {"N": 1271, "count": 8192}

    return make


def images(arrays: Arrays) -> Arguments:
    b, g, ci, co, h, w = 8, 4, 32, 64, 57, 57
    ho, wo = (h - 3) // 2 + 1, (w - 3) // 2 + 1
    return {"x": arrays.normal("fp16", b, g, ci, h, w), "w": arrays.normal("fp16", g, co, ci, 3, 3, scale=0.05),
            "out": arrays.zeros("fp16", b, g, co, ho, wo), "B": b, "H": h, "W": w, "HO": ho, "WO": wo}  # fmt: skip


def pixels(a: Arguments) -> tuple[int, ...]:
    return cdiv(a["B"] * a["HO"] * a["WO"], a["BM"]), cdiv(a["CO"], a["BN"]), a["G"]


def chunks(arrays: Arrays) -> Arguments:
    heads, t, k, v, chunk = 16, 4096, 128, 128, 64
    given = {name: arrays.normal("bf16", heads, t, k) for name in ("q", "k", "v", "do")}
    given["g"] = arrays.uniform("fp32", -1.0, 0.0, heads, t, k)
    given |= {name: arrays.normal("bf16", heads, t // chunk, v, k, scale=0.1) for name in ("h", "dh")}
    return given | {name: arrays.zeros("fp32", heads, t, k) for name in ("dq", "dk", "dg")} | {"T": t}


def gradients_of_chunks(a: Arguments) -> tuple[int, ...]:
    return a["K"] // a["BK"], cdiv(a["T"], a["BT"]), a["q"].shape[0]


WIDE = {"K": 128, "V": 128}
CONVOLVED = {"G": 4, "CI": 32, "CO": 64, "R": 3, "S": 3, "STRIDE": 2, "BM": 256, "BN": 64, "BK": 32}
CASES = [
    Case("delta_rule_16_warps", delta_rule, sequences("fp32", 16, 512, 128, 128, gated=True), parts,
         WIDE | {"BV": 64}, num_warps=16),
    Case("delta_rule_4_warps", delta_rule, sequences("bf16", 32, 512, 128, 128, gated=True), parts, WIDE | {"BV": 32}),
    Case("delta_rule_1_warp", delta_rule, sequences("bf16", 32, 512, 64, 64, gated=True), parts,
         {"K": 64, "V": 64, "BV": 8}, num_warps=1),
    Case("linear_attention_steps", linear_attention_steps, sequences("fp16", 32, 512, 128, 128, gated=False), parts,
         WIDE | {"BV": 64}, num_warps=8),
    Case("tall_sums", tall_sums, partial_sums, lambda a: (a["N"] // a["BN"],), {"N": 4096, "BM": 4096, "BN": 32},
         num_warps=8),
    Case("divergence_f32", divergence, log_probabilities("fp32"), lambda a: (a["x"].shape[0],), {"B": 2048}),
    Case("divergence_f16", divergence, log_probabilities("fp16"), lambda a: (a["x"].shape[0],), {"B": 2048}),
    Case("grouped_convolution", grouped_convolution, images, pixels, CONVOLVED),
    Case("chunk_gradients", chunk_gradients, chunks, gradients_of_chunks, WIDE | {"BT": 64, "BK": 32, "BV": 64},
         num_warps=8, num_stages=2),
]  # fmt: skip
