"""Matrix products of operands that are gathered or unpacked: int4 weights, convolution, experts, chunks."""

from __future__ import annotations

import numpy as np

import deuteron as triton
import deuteron.language as tl


@triton.jit
def int4_mm(
    a_ptr,
    q_ptr,
    scale_ptr,
    zero_ptr,
    c_ptr,
    M,
    N,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, num_stages=2):
        rk = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
        rk8 = k // 8 + tl.arange(0, BK // 8)
        q = tl.load(q_ptr + rk8[:, None] * N + rn[None, :])
        shifts = tl.arange(0, 8) * 4
        w = q[:, None, :] >> shifts[None, :, None] & 15
        w = tl.reshape(w, (BK, BN))
        g = k // GROUP
        s = tl.load(scale_ptr + g * N + rn)
        z = tl.load(zero_ptr + g * N + rn)
        w = (w - z[None, :]).to(tl.float16) * s[None, :]
        acc += tl.dot(a, w.to(a.dtype))
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=rm[:, None] < M)


@triton.jit
def int4_unpack(q_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    o = pid * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(q_ptr + o, mask=o < n, other=0)
    lo = (q << 4).to(tl.int8) >> 4
    hi = q >> 4
    both = tl.interleave(lo, hi)
    o2 = pid * BLOCK * 2 + tl.arange(0, 2 * BLOCK)
    tl.store(out_ptr + o2, both.to(tl.float32), mask=o2 < 2 * n)


@triton.jit
def conv2d(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    N,
    C,
    H,
    W,
    OC,
    OH,
    OW,
    KH: tl.constexpr,
    KW: tl.constexpr,
    stride: tl.constexpr,
    pad: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    m = pm * BM + tl.arange(0, BM)
    oc = pn * BN + tl.arange(0, BN)
    n = m // (OH * OW)
    oh = m % (OH * OW) // OW
    ow = m % OW
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, C * KH * KW, BK):
        k = k0 + tl.arange(0, BK)
        c = k // (KH * KW)
        r = k % (KH * KW)
        kh = r // KW
        kw = r % KW
        ih = oh[:, None] * stride - pad + kh[None, :]
        iw = ow[:, None] * stride - pad + kw[None, :]
        ok = (m[:, None] < N * OH * OW) & (c[None, :] < C) & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
        x = tl.load(x_ptr + ((n[:, None] * C + c[None, :]) * H + ih) * W + iw, mask=ok, other=0.0)
        w = tl.load(
            w_ptr + oc[None, :] * (C * KH * KW) + k[:, None],
            mask=(oc[None, :] < OC) & (k[:, None] < C * KH * KW),
            other=0.0,
        )
        acc = tl.dot(x, w, acc, input_precision="ieee")
    if HAS_BIAS:
        acc += tl.load(b_ptr + oc, mask=oc < OC)[None, :]
    y = y_ptr + ((n[:, None] * OC + oc[None, :]) * OH + oh[:, None]) * OW + ow[:, None]
    tl.store(y, acc, mask=(m[:, None] < N * OH * OW) & (oc[None, :] < OC))


@triton.jit
def fused_moe(
    a_ptr,
    b_ptr,
    c_ptr,
    topk_w,
    sorted_ids,
    expert_ids,
    num_post,
    N,
    K,
    EM,
    num_valid,
    sam,
    sak,
    sbe,
    sbk,
    sbn,
    scm,
    scn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    MUL: tl.constexpr,
    top_k: tl.constexpr,
    compute_type: tl.constexpr,
):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(EM, BM)
    num_pid_n = tl.cdiv(N, BN)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + pid % num_pid_in_group % group_size_m
    pid_n = pid % num_pid_in_group // group_size_m
    npp = tl.load(num_post)
    if pid_m * BM >= npp:
        return
    offs_token_id = pid_m * BM + tl.arange(0, BM).to(tl.int64)
    offs_token = tl.load(sorted_ids + offs_token_id)
    token_mask = offs_token < num_valid
    off_e = tl.load(expert_ids + pid_m).to(tl.int64)
    if off_e == -1:
        tl.store(
            c_ptr + offs_token[:, None] * scm + (pid_n * BN + tl.arange(0, BN))[None, :],
            tl.zeros((BM, BN), dtype=compute_type),
            mask=token_mask[:, None],
        )
        return
    offs_bn = (pid_n * BN + tl.arange(0, BN).to(tl.int64)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + (offs_token[:, None] // top_k * sam + offs_k[None, :] * sak)
    b_ptrs = b_ptr + off_e * sbe + (offs_k[:, None] * sbk + offs_bn[None, :] * sbn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=token_mask[:, None] & (offs_k[None, :] < K - k * BK), other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    if MUL:
        w = tl.load(topk_w + offs_token, mask=token_mask, other=0)
        acc = acc * w[:, None]
    acc = acc.to(compute_type)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + scm * offs_token[:, None] + scn * offs_cn[None, :]
    c_mask = token_mask[:, None] & (offs_cn[None, :] < N)
    tl.store(c_ptrs, acc, mask=c_mask)


@triton.jit
def chunk_state(
    k_ptr,
    v_ptr,
    g_ptr,
    h_ptr,
    T,
    K: tl.constexpr,
    V: tl.constexpr,
    BT: tl.constexpr,
    USE_G: tl.constexpr,
):
    b_h = tl.zeros([K, V], dtype=tl.float32)
    NT = tl.cdiv(T, BT)
    for i_t in range(NT):
        o_t = i_t * BT + tl.arange(0, BT)
        m_t = o_t < T
        tl.store(
            h_ptr + i_t.to(tl.int64) * K * V + tl.arange(0, K)[:, None] * V + tl.arange(0, V)[None, :],
            b_h,
        )
        b_k = tl.load(k_ptr + o_t[None, :] * K + tl.arange(0, K)[:, None], mask=m_t[None, :], other=0)
        b_v = tl.load(v_ptr + o_t[:, None] * V + tl.arange(0, V)[None, :], mask=m_t[:, None], other=0)
        last = min((i_t + 1) * BT, T) - 1
        if USE_G:
            b_g_last = tl.load(g_ptr + last)
            b_g = tl.load(g_ptr + o_t, mask=m_t, other=0.0)
            b_v = (b_v * tl.where(m_t, tl.exp(b_g_last - b_g), 0)[:, None]).to(b_v.dtype)
            b_h *= tl.exp(b_g_last)
        b_h += tl.dot(b_k, b_v)
    tl.store(h_ptr + NT * K * V + tl.arange(0, K)[:, None] * V + tl.arange(0, V)[None, :], b_h)


def test_packed_int4_weights(launch, rng, normal, close) -> None:
    m, n, k, group = 20, 64, 64, 32
    a, w = normal(m, k).astype(np.float16), rng.integers(0, 16, (k, n))
    scales = abs(normal(k // group, n)).astype(np.float16)
    zeros = rng.integers(0, 16, scales.shape).astype(np.int32)
    packed = np.zeros((k // 8, n), np.uint32)
    for i in range(8):
        packed |= w[i::8].astype(np.uint32) << np.uint32(4 * i)
    # The kernel multiplies in f16: what it multiplies with is rounded, too.
    weights = (w - zeros.repeat(group, 0)).astype(np.float16) * scales.repeat(group, 0)
    arguments = a, packed.view(np.int32), scales, zeros, np.zeros((m, n), np.float16), m, n
    done = launch(int4_mm, (2, 1), *arguments, K=k, GROUP=group, BM=16, BN=64, BK=32)
    close(done[4], a.astype(np.float64) @ weights.astype(np.float64), 1e-2)


def test_unpacking_nibbles(launch, rng) -> None:
    q = rng.integers(-128, 128, 77).astype(np.int8)
    wide = q.astype(np.int32)
    exact = np.stack([(wide << 28) >> 28, wide >> 4], 1).ravel()
    _, got, _ = launch(int4_unpack, (2,), q, np.zeros(154, np.float32), 77, BLOCK=64)
    np.testing.assert_array_equal(got, exact)


def test_convolution(launch, normal, close) -> None:
    n, c, h, w, out = 2, 3, 7, 6, 5
    x, kernel, bias = normal(n, c, h, w), normal(out, c, 3, 3), normal(out)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    exact = np.zeros((n, out, 4, 3))
    for i in range(4):
        for j in range(3):
            patch = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            exact[:, :, i, j] = np.einsum("nchw,ochw->no", patch, kernel) + bias
    sizes = {"KH": 3, "KW": 3, "stride": 2, "pad": 1, "BM": 16, "BN": 16, "BK": 16}
    arguments = x, kernel, bias, exact.astype(np.float32) * 0, n, c, h, w, out, 4, 3
    close(launch(conv2d, (2, 1), *arguments, HAS_BIAS=True, **sizes)[3], exact, 1e-4)


def test_mixture_of_experts(launch, rng, normal, close) -> None:
    tokens, top, experts, n, k, block = 6, 2, 3, 40, 50, 16
    a, b = normal(tokens, k).astype(np.float16), normal(experts, n, k).astype(np.float16)
    weights, chosen = abs(normal(tokens * top)), rng.integers(0, experts, tokens * top)
    order: list[int] = []
    expert_of_block: list[int] = []
    for e in range(experts):
        mine = [*np.flatnonzero(chosen == e)]
        mine += [tokens * top] * (-len(mine) % block)
        order += mine
        expert_of_block += [e] * (len(mine) // block)
    rows = [w * b[e].astype(np.float64) @ a[t // top] for t, (e, w) in enumerate(zip(chosen, weights, strict=True))]
    tables = (np.array(v, np.int32) for v in (order, expert_of_block, [len(order)]))
    out = np.zeros((tokens * top, n), np.float16)
    numbers = n, k, len(order), tokens * top, k, 1, n * k, 1, k, n, 1
    done = launch(
        fused_moe,
        (2 * len(expert_of_block),),
        *(a, b, out, weights, *tables, *numbers),
        BM=block,
        BN=32,
        BK=32,
        GROUP_SIZE_M=1,
        MUL=True,
        top_k=top,
        compute_type=tl.float16,
    )
    close(done[2], np.stack(rows), 2e-2)


def test_states_of_chunks(launch, normal, close) -> None:
    t, k, v, chunk = 40, 16, 32, 16
    keys, values = normal(t, k).astype(np.float16), normal(t, v).astype(np.float16)
    gates = -abs(normal(t)) * 0.1
    states = [np.zeros((k, v))]
    for i in range(0, t, chunk):
        g = gates[i : i + chunk].astype(np.float64)
        new = values[i : i + chunk] * np.exp(g[-1] - g)[:, None]
        states.append(states[-1] * np.exp(g[-1]) + keys[i : i + chunk].astype(np.float64).T @ new)
    zeros = np.zeros((4, k, v), np.float32)
    done = launch(chunk_state, (1,), keys, values, gates, zeros, t, K=k, V=v, BT=chunk, USE_G=True)
    close(done[3], np.stack(states), 2e-2)
