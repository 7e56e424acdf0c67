"""Block pointers as values: through loops, branches, tuples and helpers, as libraries write kernels with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl

Launch = Callable[..., list[Any]]


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    a = tl.make_block_ptr(a_ptr, (M, K), (sam, sak), (tl.program_id(0) * BM, 0), (BM, BK), (1, 0))
    b = tl.make_block_ptr(
        base=b_ptr, shape=(K, N), strides=(sbk, sbn), offsets=(0, tl.program_id(1) * BN), block_shape=(BK, BN),
        order=(1, 0),
    )  # fmt: skip
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        x = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(b, boundary_check=(0, 1), padding_option="zero")
        acc += tl.dot(x, y, input_precision="ieee")
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, [BK, 0])
    c = tl.make_block_ptr(c_ptr, (M, N), (scm, scn), (tl.program_id(0) * BM, tl.program_id(1) * BN), (BM, BN), (1, 0))
    tl.store(c, tl.maximum(acc, 0.0).to(c.dtype.element_ty), boundary_check=(0, 1))


@pytest.mark.parametrize("transposed", [False, True])
def test_fused_matmul(launch: Launch, normal, close, transposed: bool):
    m, n, k = 40, 24, 50
    a, b = normal(k, m).T if transposed else normal(m, k), normal(n, k).T if transposed else normal(k, n)
    strides = [s // 4 for x in (a, b) for s in x.strides]
    held = [np.ascontiguousarray(x.T if transposed else x) for x in (a, b)]
    sizes = {"BM": 16, "BN": 16, "BK": 16}
    got = launch(matmul, (3, 2), *held, np.ones((m, n), np.float32), m, n, k, *strides, n, 1, **sizes)[2]
    close(got, np.maximum(a.astype(np.float64) @ b, 0), 1e-4)


@triton.jit
def attention_step(acc, m_i, l_i, q, K_block, V_block, lo, hi, start_m, scale, CAUSAL: tl.constexpr, BN: tl.constexpr):
    K_block = tl.advance(K_block, (0, lo))
    V_block = tl.advance(V_block, (lo, 0))
    rows = start_m * q.shape[0] + tl.arange(0, q.shape[0])
    for start in range(lo, hi, BN):
        qk = tl.dot(q, tl.load(K_block), input_precision="ieee") * scale
        if CAUSAL:
            qk += tl.where(rows[:, None] >= start + tl.arange(0, BN)[None, :], 0, -1.0e6)
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        acc = acc * alpha[:, None] + tl.dot(p, tl.load(V_block), input_precision="ieee")
        l_i = l_i * alpha + tl.sum(p, 1)
        m_i = m_new
        V_block = tl.advance(V_block, (BN, 0))
        K_block = tl.advance(K_block, (0, BN))
    return acc, m_i, l_i, K_block, V_block


@triton.jit
def attention(
    Q, K, V, out, scale, stride_h, stride_n, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    start_m, head = tl.program_id(0), tl.program_id(1)
    at = head.to(tl.int64) * stride_h
    Q_block = tl.make_block_ptr(Q + at, (N, D), (stride_n, 1), (start_m * BM, 0), (BM, D), (1, 0))
    K_block = tl.make_block_ptr(K + at, (D, N), (1, stride_n), (0, 0), (D, BN), (0, 1))
    V_block = tl.make_block_ptr(V + at, (N, D), (stride_n, 1), (0, 0), (BN, D), (1, 0))
    O_block = tl.make_block_ptr(out + at, (N, D), (stride_n, 1), (start_m * BM, 0), (BM, D), (1, 0))
    m_i = tl.full((BM,), float("-inf"), tl.float32)
    l_i = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    q = tl.load(Q_block)
    scale *= 1.44269504
    middle = start_m * BM
    acc, m_i, l_i, _, _ = attention_step(acc, m_i, l_i, q, K_block, V_block, 0, middle, start_m, scale, False, BN)
    acc, m_i, l_i, K_block, V_block = attention_step(
        acc, m_i, l_i, q, K_block, V_block, middle, middle + BM, start_m, scale, True, BN
    )
    tl.store(O_block, (acc / l_i[:, None]).to(out.type.element_ty))


def test_causal_attention(launch: Launch, normal, close):
    heads, n, d = 2, 64, 16
    q, k, v = (normal(heads, n, d) for _ in range(3))
    out = np.zeros_like(q)
    got = launch(attention, (2, heads), q, k, v, out, d**-0.5, n * d, d, n, D=d, BM=32, BN=16)[3]
    scores = np.einsum("hid,hjd->hij", *(x.astype(np.float64) for x in (q, k))) * d**-0.5
    scores[:, np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    close(got, weights / weights.sum(-1, keepdims=True) @ v, 1e-4)


@triton.jit
def chunked_linear_attention(
    q, k, v, h0, ht, o, T, scale, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, USE_INITIAL_STATE: tl.constexpr, STORE_FINAL: tl.constexpr,
):  # fmt: skip
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = i_bh // H, i_bh % H
    rows = tl.arange(0, BT)
    causal = rows[:, None] >= rows[None, :]
    b_h = tl.zeros([BK, BV], dtype=tl.float32)
    if USE_INITIAL_STATE:
        p_h0 = tl.make_block_ptr(h0 + i_bh * K * V, (K, V), (V, 1), (0, i_v * BV), (BK, BV), (1, 0))
        b_h = tl.load(p_h0, boundary_check=(0, 1)).to(tl.float32)
    for i_t in range(tl.cdiv(T, BT)):
        bos = (i_b * T * H + i_h).to(tl.int64)
        p_q = tl.make_block_ptr(q + bos * K, (T, K), (H * K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
        p_k = tl.make_block_ptr(k + bos * K, (K, T), (1, H * K), (0, i_t * BT), (BK, BT), (0, 1))
        p_v = tl.make_block_ptr(v + bos * V, (T, V), (H * V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        p_o = tl.make_block_ptr(o + bos * V, (T, V), (H * V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        b_q = (tl.load(p_q, boundary_check=(0, 1)) * scale).to(p_q.dtype.element_ty)
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_v = tl.load(p_v, boundary_check=(0, 1))
        b_s = tl.where(causal, tl.dot(b_q, b_k, input_precision="ieee"), 0)
        b_o = tl.dot(b_s.to(b_q.dtype), b_v, input_precision="ieee")
        b_o += tl.dot(b_q, b_h.to(b_q.dtype), input_precision="ieee")
        tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))
        b_h += tl.dot(b_k, b_v, input_precision="ieee")
    if STORE_FINAL:
        p_ht = tl.make_block_ptr(ht + i_bh * K * V, (K, V), (V, 1), (0, i_v * BV), (BK, BV), (1, 0))
        tl.store(p_ht, b_h.to(p_ht.dtype.element_ty), boundary_check=(0, 1))


def test_chunked_linear_attention(launch: Launch, normal, close):
    batch, time, heads, dk, dv, block = 2, 37, 2, 12, 24, 16
    q, k, v = normal(batch, time, heads, dk), normal(batch, time, heads, dk), normal(batch, time, heads, dv)
    start = normal(batch, heads, dk, dv)
    arrays = [q, k, v, start, np.zeros_like(start), np.zeros_like(v)]
    options = {"H": heads, "K": dk, "V": dv, "BT": block, "BK": 16, "BV": 16}
    flags = {"USE_INITIAL_STATE": True, "STORE_FINAL": True}
    *_, end, out, _, _ = launch(
        chunked_linear_attention, (2, batch * heads), *arrays, time, dk**-0.5, **options, **flags
    )
    state, expected = start.astype(np.float64), np.zeros(v.shape)
    for t in range(time):
        state = state + np.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
        expected[:, t] = np.einsum("bhk,bhkv->bhv", q[:, t] * dk**-0.5, state)
    close(out, expected, 1e-4)
    close(end, state, 1e-4)


@triton.jit
def batched_scale(x, y, B, M, N, BM: tl.constexpr, BN: tl.constexpr):
    p = tl.make_block_ptr(x, (B, M, N), (M * N, N, 1), (0, 0, 0), (1, BM, BN), (2, 1, 0))
    q = tl.make_block_ptr(y, (B, N, M), (M * N, M, 1), (0, 0, 0), (1, BN, BM), (2, 1, 0))
    batch = 0
    while batch < B:
        tile = tl.load(p, boundary_check=(1, 2))
        tl.store(q, tl.trans(tile, 0, 2, 1) * (batch + 1), boundary_check=(1, 2))
        p, q = p.advance((1, 0, 0)), q.advance((1, 0, 0))
        batch += 1


def test_three_dimensions_in_a_while_loop(launch: Launch, normal):
    x = normal(3, 10, 12)
    got = launch(batched_scale, (1,), x, np.zeros((3, 12, 10), np.float32), 3, 10, 12, BM=16, BN=16)[1]
    np.testing.assert_array_equal(got, x.transpose(0, 2, 1) * np.float32([1, 2, 3])[:, None, None])


@triton.jit
def moved(pair, step):
    p, q = pair
    return p.advance((step,)), q


@triton.jit
def first_of(p, q, which):
    if which == 0:
        return p
    return tl.advance(q, (4,))


@triton.jit
def walk(x, y, out, n, which, rounds, B: tl.constexpr):
    pair = (
        tl.make_block_ptr(x, (n,), (1,), (0,), (B,), (0,)),
        tl.make_block_ptr(y, (2 * n,), (2,), (0,), (B,), (0,)),
    )
    acc = tl.zeros((B,), tl.float32)
    for i in range(rounds):
        if i % 2 == which:
            pair = moved(pair, 3)
        elif i == 5:
            break
        acc += tl.load(pair[0], boundary_check=(0,))
    p = pair[0] if which == 0 else pair[1]
    acc += tl.load(p, boundary_check=(0,), padding_option="zero")
    other = first_of(pair[0], pair[1], which)
    acc += tl.load(other, boundary_check=[0])
    if which == 1:
        last = tl.make_block_ptr(x, (n,), (1,), (1,), (B,), (0,))
    else:
        last = tl.make_block_ptr(y, (n,), (1,), (2,), (B,), (0,))
    acc += tl.load(last, boundary_check=0)
    tl.store(tl.make_block_ptr(out, (B,), (1,), (0,), (B,), (0,)), acc)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("rounds", [0, 4, 9])
def test_block_pointers_in_tuples_branches_and_helpers(launch: Launch, normal, which: int, rounds: int):
    n, block = 20, 8
    x, y = normal(n), normal(2 * n)
    got = launch(walk, (1,), x, y, np.zeros(block, np.float32), n, which, rounds, B=block)[2]

    def read(array: np.ndarray, size: int, stride: int, offset: int) -> np.ndarray:
        places = range(offset, offset + block)
        return np.float32([array[i * stride] if 0 <= i < size else 0 for i in places])

    acc, at = np.zeros(block, np.float32), 0
    for i in range(rounds):
        if i % 2 == which:
            at += 3
        elif i == 5:
            break
        acc = acc + read(x, n, 1, at)
    acc = acc + (read(x, n, 1, at) if which == 0 else read(np.pad(y, (0, 2 * n)), 2 * n, 2, 0))
    acc = acc + (read(x, n, 1, at) if which == 0 else read(np.pad(y, (0, 2 * n)), 2 * n, 2, 4))
    acc = acc + (read(x, n, 1, 1) if which == 1 else read(y, n, 1, 2))
    np.testing.assert_array_equal(got, acc)


@triton.jit
def of_either_order(x_ptr, out_ptr, n, transposed, B: tl.constexpr):
    if transposed:
        block = tl.make_block_ptr(x_ptr, (B, n), (1, B), (0, 0), (B, B), (0, 1))
    else:
        block = tl.make_block_ptr(x_ptr, (n, B), (B, 1), (0, 0), (B, B), (1, 0))
    total = tl.zeros((B, B), tl.float32)
    for _ in range(2):
        total = total * 2 + tl.load(block, boundary_check=(0, 1))
        block = tl.make_block_ptr(x_ptr, (n, B), (B, 1), (B, 0), (B, B), (1, 0))
    i = tl.arange(0, B)
    tl.store(out_ptr + i[:, None] * B + i[None, :], total)


@pytest.mark.parametrize("transposed", [False, True])
def test_orders_meet(launch: Launch, normal, close, transposed: bool):
    x, size = normal(24, 16), 16
    first = x[:size].T if transposed else x[:size]
    second = np.zeros((size, size))
    second[:8] = x[size:]
    got = launch(of_either_order, (1,), x, np.ones((size, size), np.float32), 24, int(transposed), B=size)[1]
    close(got, 2 * first.astype(np.float64) + second, 1e-5)
