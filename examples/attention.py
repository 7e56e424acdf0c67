"""Attention, forward and backward, with the softmax computed on the way: no matrix of scores is ever stored.

python examples/attention.py [--device cpu|cuda:0]

The formulation is FlashAttention-2's (Dao, 2023): a program of the forward pass keeps one block of queries and walks
over the keys, rescaling what it has summed whenever the largest score grows. The backward pass recomputes the scores
from the logarithm of each row's sum: one kernel walks over queries for a block of keys, one over keys for a block of
queries.
"""

import numpy as np
from harness import Device, check, device_from_command_line

import deuteron as triton
import deuteron.language as tl


@triton.jit
def place(N, HEAD: tl.constexpr, BLOCK: tl.constexpr, LAST_FIRST: tl.constexpr):
    """Where a program works: its head, where that begins in memory, the first of its rows, its rows, and their tile.
    LAST_FIRST: the last rows of a head come first, as they see the most keys if attention is causal; a launch ends with
    short programs then."""
    head = tl.program_id(1)
    block = tl.program_id(0)
    if LAST_FIRST:
        block = tl.num_programs(0) - 1 - block
    first = block * BLOCK
    rows = first + tl.arange(0, BLOCK)
    return head, head.to(tl.int64) * N * HEAD, first, rows, rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]


@triton.jit
def count_keys(first, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """How many keys all queries of a block see, in whole blocks, which need no masks, and how many any of them sees."""
    end = N
    plain = N
    if CAUSAL:
        end = tl.minimum(first + BLOCK_M, N)
        plain = tl.minimum(first, N)
    return plain // BLOCK_N * BLOCK_N, end


@triton.jit
def is_seen(keys, rows, N, CAUSAL: tl.constexpr):
    """Of which keys there are scores: [queries, keys]."""
    seen = keys[None, :] < N
    if CAUSAL:
        seen = seen & (keys[None, :] <= rows[:, None])
    return seen


@triton.jit
def attend(
    acc, total, peak, q, K, V, rows, low, high, N, scale,
    HEAD: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Take the keys [low, high) in; ``scale`` turns scores into exponents of two. Only MASKED blocks may have keys
    beyond N or, if CAUSAL, beyond their queries."""
    dims = tl.arange(0, HEAD)
    for start in range(low, high, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k_ptrs = K + dims[:, None] + keys[None, :] * HEAD
        v_ptrs = V + keys[:, None] * HEAD + dims[None, :]
        if MASKED:
            k = tl.load(k_ptrs, mask=keys[None, :] < N, other=0.0)
            v = tl.load(v_ptrs, mask=keys[:, None] < N, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(v_ptrs)
        scores = tl.dot(q, k)
        if MASKED:
            scores = tl.where(is_seen(keys, rows, N, CAUSAL), scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        acc = tl.dot(p.to(V.dtype.element_ty), v, acc)
        peak = higher
    return acc, total, peak


@triton.jit
def attention_forward(
    Q, K, V, Out, Lse, N, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, offset, first, rows, tile = place(N, HEAD, BLOCK_M, CAUSAL)
    q = tl.load(Q + offset + tile, mask=rows[:, None] < N, other=0.0)
    peak = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], tl.float32)
    plain, end = count_keys(first, N, BLOCK_M, BLOCK_N, CAUSAL)
    K += offset
    V += offset
    acc, total, peak = attend(
        acc, total, peak, q, K, V, rows, 0, plain, N, scale, HEAD, BLOCK_N, False, CAUSAL
    )  # fmt: skip
    acc, total, peak = attend(
        acc, total, peak, q, K, V, rows, plain, end, N, scale, HEAD, BLOCK_N, True, CAUSAL
    )  # fmt: skip
    tl.store(Lse + head * N + rows, peak + tl.log2(total), mask=rows < N)
    out = acc / total[:, None]
    tl.store(Out + offset + tile, out.to(Out.dtype.element_ty), mask=rows[:, None] < N)


@triton.jit
def row_products(Out, DOut, Delta, N, HEAD: tl.constexpr, BLOCK_M: tl.constexpr):
    """Delta = row sums of Out * DOut: what the softmax's derivative takes off every score."""
    head, offset, first, rows, tile = place(N, HEAD, BLOCK_M, False)
    out = tl.load(Out + offset + tile, mask=rows[:, None] < N, other=0.0).to(tl.float32)
    d_out = tl.load(DOut + offset + tile, mask=rows[:, None] < N, other=0.0).to(tl.float32)
    tl.store(Delta + head * N + rows, tl.sum(out * d_out, 1), mask=rows < N)


@triton.jit
def gather_dkdv(
    dk, dv, k, v, Q, DOut, Lse, Delta, keys, low, high, N, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Add what the queries [low, high) contribute to one block of keys; scores stand as [keys, queries]."""
    dims = tl.arange(0, HEAD)
    for start in range(low, high, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        q_ptrs = Q + dims[:, None] + rows[None, :] * HEAD
        d_ptrs = DOut + rows[:, None] * HEAD + dims[None, :]
        if MASKED:
            q = tl.load(q_ptrs, mask=rows[None, :] < N, other=0.0)
            d_out = tl.load(d_ptrs, mask=rows[:, None] < N, other=0.0)
            lse = tl.load(Lse + rows, mask=rows < N, other=0.0)
            delta = tl.load(Delta + rows, mask=rows < N, other=0.0)
        else:
            q = tl.load(q_ptrs)
            d_out = tl.load(d_ptrs)
            lse = tl.load(Lse + rows)
            delta = tl.load(Delta + rows)
        p = tl.exp2(tl.dot(k, q) * scale - lse[None, :])
        if MASKED and CAUSAL:
            p = tl.where(keys[:, None] <= rows[None, :], p, 0.0)
        dv = tl.dot(p.to(d_out.dtype), d_out, dv)
        ds = p * (tl.dot(v, tl.trans(d_out)) - delta[None, :])
        dk = tl.dot(ds.to(q.dtype), tl.trans(q), dk)
    return dk, dv


@triton.jit
def attention_dkdv(
    Q, K, V, DOut, Lse, Delta, DK, DV, N, scale, sm_scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, offset, first, keys, tile = place(N, HEAD, BLOCK_N, False)
    k = tl.load(K + offset + tile, mask=keys[:, None] < N, other=0.0)
    v = tl.load(V + offset + tile, mask=keys[:, None] < N, other=0.0)
    dk = tl.zeros([BLOCK_N, HEAD], tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD], tl.float32)
    Q += offset
    DOut += offset
    Lse += head * N
    Delta += head * N
    # First the queries that see a part of these keys, then those that see all, last a block that ends beyond N.
    low = 0
    whole = 0
    if CAUSAL:
        low = first // BLOCK_M * BLOCK_M
        whole = tl.minimum(tl.cdiv(first + BLOCK_N, BLOCK_M) * BLOCK_M, N)
        dk, dv = gather_dkdv(
            dk, dv, k, v, Q, DOut, Lse, Delta, keys, low, whole, N, scale, HEAD, BLOCK_M, True, True
        )  # fmt: skip
    tail = tl.maximum(N // BLOCK_M * BLOCK_M, whole)
    dk, dv = gather_dkdv(
        dk, dv, k, v, Q, DOut, Lse, Delta, keys, whole, tail, N, scale, HEAD, BLOCK_M, False, CAUSAL
    )  # fmt: skip
    dk, dv = gather_dkdv(
        dk, dv, k, v, Q, DOut, Lse, Delta, keys, tail, N, N, scale, HEAD, BLOCK_M, True, CAUSAL
    )  # fmt: skip
    tl.store(DK + offset + tile, (dk * sm_scale).to(DK.dtype.element_ty), mask=keys[:, None] < N)
    tl.store(DV + offset + tile, dv.to(DV.dtype.element_ty), mask=keys[:, None] < N)


@triton.jit
def gather_dq(
    dq, q, d_out, lse, delta, K, V, rows, low, high, N, scale,
    HEAD: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Add what the keys [low, high) contribute to one block of queries."""
    dims = tl.arange(0, HEAD)
    for start in range(low, high, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        tile = dims[:, None] + keys[None, :] * HEAD
        if MASKED:
            k = tl.load(K + tile, mask=keys[None, :] < N, other=0.0)
            v = tl.load(V + tile, mask=keys[None, :] < N, other=0.0)
        else:
            k = tl.load(K + tile)
            v = tl.load(V + tile)
        p = tl.exp2(tl.dot(q, k) * scale - lse[:, None])
        if MASKED:
            p = tl.where(is_seen(keys, rows, N, CAUSAL), p, 0.0)
        ds = p * (tl.dot(d_out, v) - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), tl.trans(k), dq)
    return dq


@triton.jit
def attention_dq(
    Q, K, V, DOut, Lse, Delta, DQ, N, scale, sm_scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, offset, first, rows, tile = place(N, HEAD, BLOCK_M, CAUSAL)
    q = tl.load(Q + offset + tile, mask=rows[:, None] < N, other=0.0)
    d_out = tl.load(DOut + offset + tile, mask=rows[:, None] < N, other=0.0)
    lse = tl.load(Lse + head * N + rows, mask=rows < N, other=0.0)
    delta = tl.load(Delta + head * N + rows, mask=rows < N, other=0.0)
    plain, end = count_keys(first, N, BLOCK_M, BLOCK_N, CAUSAL)
    dq = tl.zeros([BLOCK_M, HEAD], tl.float32)
    K += offset
    V += offset
    dq = gather_dq(dq, q, d_out, lse, delta, K, V, rows, 0, plain, N, scale, HEAD, BLOCK_N, False, CAUSAL)
    dq = gather_dq(dq, q, d_out, lse, delta, K, V, rows, plain, end, N, scale, HEAD, BLOCK_N, True, CAUSAL)
    tl.store(DQ + offset + tile, (dq * sm_scale).to(DQ.dtype.element_ty), mask=rows[:, None] < N)


LOG2E = 1.4426950408889634
#: BLOCK_M, BLOCK_N and num_warps of the three kernels.
FORWARD = {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8}
DKDV = {"BLOCK_M": 64, "BLOCK_N": 128, "num_warps": 8}
DQ = {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8}


def forward(q, k, v, out, lse, causal: bool, options=FORWARD):
    """out = softmax(q k^T / sqrt(d)) v for q, k, v, out of shape [heads, N, d], d a power of two, C order; heads of a
    batch count as heads. ``lse`` [heads, N] f32 gets the base-two logarithm of each row's sum."""
    heads, n, d = q.shape
    grid = (triton.cdiv(n, options["BLOCK_M"]), heads)
    attention_forward[grid](q, k, v, out, lse, n, d**-0.5 * LOG2E, HEAD=d, CAUSAL=causal, **options)
    return out


def backward(q, k, v, out, lse, d_out, delta, dq, dk, dv, causal: bool, dkdv=DKDV, dq_options=DQ):
    """Gradients of :func:`forward` for the gradient ``d_out``, all [heads, N, d]; ``delta``, f32 [heads, N], is
    scratch."""
    heads, n, d = q.shape
    scales = (d**-0.5 * LOG2E, d**-0.5)
    row_products[(triton.cdiv(n, 64), heads)](out, d_out, delta, n, HEAD=d, BLOCK_M=64)
    attention_dkdv[(triton.cdiv(n, dkdv["BLOCK_N"]), heads)](
        q, k, v, d_out, lse, delta, dk, dv, n, *scales, HEAD=d, CAUSAL=causal, **dkdv
    )  # fmt: skip
    attention_dq[(triton.cdiv(n, dq_options["BLOCK_M"]), heads)](
        q, k, v, d_out, lse, delta, dq, n, *scales, HEAD=d, CAUSAL=causal, **dq_options
    )  # fmt: skip


def reference(q, k, v, d_out, causal: bool) -> dict[str, np.ndarray]:
    """Output and gradients in float64."""
    q, k, v, d_out = (x.astype(np.float64) for x in (q, k, v, d_out))
    scale = q.shape[-1] ** -0.5
    scores = np.einsum("hmd,hnd->hmn", q, k) * scale
    if causal:
        scores = np.where(np.tri(q.shape[1], dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    out = p @ v
    ds = p * (np.einsum("hmd,hnd->hmn", d_out, v) - (out * d_out).sum(axis=2, keepdims=True)) * scale
    transposed = p.transpose(0, 2, 1), ds.transpose(0, 2, 1)
    return {"out": out, "dq": ds @ k, "dk": transposed[1] @ q, "dv": transposed[0] @ d_out}


def main(device: Device, shape: tuple[int, int, int] = (2, 200, 64)) -> None:
    """Forward and backward, causal and not, at a length that is no multiple of any block."""
    rng = np.random.default_rng(0)
    q, k, v, d_out = (rng.standard_normal(shape).astype(np.float16) for _ in range(4))
    inputs = [device.array(x) for x in (q, k, v)]
    for causal in (False, True):
        out, dq, dk, dv = (device.empty(shape, "f16") for _ in range(4))
        lse, delta = (device.empty(shape[:2]) for _ in range(2))
        forward(*inputs, out, lse, causal)
        backward(*inputs, out, lse, device.array(d_out), delta, dq, dk, dv, causal)
        wanted = reference(q, k, v, d_out, causal)
        for name, found in {"out": out, "dq": dq, "dk": dk, "dv": dv}.items():
            check(f"{'causal ' * causal}attention {name}", device.numpy(found), wanted[name], tolerance=5e-3)


if __name__ == "__main__":
    main(device_from_command_line())
