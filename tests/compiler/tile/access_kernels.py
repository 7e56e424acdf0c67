"""Kernels whose accesses are boxes of arrays, in the spellings that authors use."""

# ruff: noqa: SIM300  (bounds on either side are what is tested)

import deuteron as triton
import deuteron.language as tl


@triton.jit
def matmul(a, sa0, sa1, b, sb0, sb1, c, sc0, sc1, M, N, K,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORM: tl.constexpr):  # fmt: skip
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    if FORM == 0:  # indices made anew
        for k in range(0, K, BK):
            kk = k + rk
            x = tl.load(a + rm[:, None] * sa0 + kk[None, :] * sa1, (rm[:, None] < M) & (kk[None, :] < K), other=0)
            y = tl.load(b + kk[:, None] * sb0 + rn[None, :] * sb1, (kk[:, None] < K) & (rn[None, :] < N), other=0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
    elif FORM == 1:  # pointers carried, what is left of K compared
        pa = a + rm[:, None] * sa0 + rk[None, :] * sa1
        pb = b + (rk[:, None] * sb0 + rn[None, :] * sb1)
        for k in range(tl.cdiv(K, BK)):
            x = tl.load(pa, (rk[None, :] < K - k * BK) & (rm < M)[:, None], other=0)
            y = tl.load(pb, (rk[:, None] < K - k * BK) & (rn < N)[None, :], other=0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
            pa += BK * sa1
            pb += BK * sb0
    elif FORM == 2:  # pointers and offsets carried
        pa = a + (rm[:, None] * sa0 + rk[None, :] * sa1)
        pb = b + rn[None, :] * sb1
        for _ in range(0, K, BK):
            x = tl.load(pa, (K > rk)[None, :] & (M > rm[:, None]), other=0)
            y = tl.load(pb + rk[:, None] * sb0, (K > rk)[:, None] & (N > rn[None, :]), other=0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
            pa += sa1 * BK
            rk += BK
    elif FORM == 3:  # base pointers carried, 64-bit offsets
        for k in range(K, 0, -BK):
            x = tl.load(a + rm[:, None].to(tl.int64) * sa0 + rk[None, :] * sa1,
                        (rk[None, :] <= k - 1) & (rm[:, None] <= M - 1), other=0)  # fmt: skip
            y = tl.load(b + rk[:, None].to(tl.int64) * sb0 + rn[None, :] * sb1,
                        (rk[:, None] <= k - 1) & (rn[None, :] <= N - 1), other=0)  # fmt: skip
            acc = tl.dot(x, y, acc, input_precision="ieee")
            a += BK * sa1
            b += BK * sb0
    elif FORM == 4:  # operands read transposed
        for k in range(0, K, BK):
            kk = tl.max_contiguous(tl.multiple_of(k + rk, BK), BK)
            x = tl.load(a + kk[:, None] * sa1 + rm[None, :] * sa0, (kk[:, None] < K) & (rm[None, :] < M), other=0)
            y = tl.load(b + rn[:, None] * sb1 + kk[None, :] * sb0, (kk[None, :] < K) & (rn[:, None] < N), other=0)
            acc = tl.dot(tl.trans(x), tl.trans(y), acc, input_precision="ieee")
    else:  # a loop in a loop
        for k0 in range(0, K, 2 * BK):
            pa = a + rm[:, None] * sa0 + (k0 + rk[None, :]) * sa1
            for k in range(k0, min(k0 + 2 * BK, K), BK):
                kk = k + rk
                x = tl.load(pa, (rm[:, None] < M) & (kk[None, :] < K), other=0)
                y = tl.load(b + kk[:, None] * sb0 + rn[None, :] * sb1, (kk[:, None] < K) & (rn[None, :] < N), other=0)
                acc = tl.dot(x, y, acc, input_precision="ieee")
                pa += BK * sa1
    tl.store(c + rm[:, None] * sc0 + rn[None, :] * sc1, acc, (rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def grouped_matmul(a, sa0, sa1, b, sb0, sb1, c, sc0, sc1, M, N, K,
                   BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    in_group = GROUP * tl.cdiv(N, BN)
    first = pid // in_group * GROUP
    size = min(tl.cdiv(M, BM) - first, GROUP)
    pm = first + pid % in_group % size
    pn = pid % in_group // size
    rm = (pm * BM + tl.arange(0, BM)) % M
    rn = tl.max_contiguous(tl.multiple_of((pn * BN + tl.arange(0, BN)) % N, BN), BN)
    rk = tl.arange(0, BK)
    pa = a + (rm[:, None] * sa0 + rk[None, :] * sa1)
    pb = b + (rk[:, None] * sb0 + rn[None, :] * sb1)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(pa, rk[None, :] < K - k * BK, other=0)
        y = tl.load(pb, rk[:, None] < K - k * BK, other=0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        pa += BK * sa1
        pb += BK * sb0
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    tl.store(c + sc0 * rm[:, None] + sc1 * rn[None, :], acc, (rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def peeled(a, sa0, sa1, b, sb0, sb1, c, sc0, sc1, M, N, K,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * sa0 + rk[None, :] * sa1
    pb = b + rk[:, None] * sb0 + rn[None, :] * sb1
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K - BK + 1, BK):
        x = tl.load(pa, rm[:, None] < M, other=0)
        y = tl.load(pb, rn[None, :] < N, other=0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        pa += BK * sa1
        pb += BK * sb0
    x = tl.load(pa, (rm[:, None] < M) & (rk[None, :] < K % BK), other=0)
    y = tl.load(pb, (rk[:, None] < K % BK) & (rn[None, :] < N), other=0)
    acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(c + rm[:, None] * sc0 + rn[None, :] * sc1, acc, (rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def batched(a, sa0, sa1, b, sb0, sb1, c, sc0, sc1, M, N, K, za, zb, zc,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    z = tl.program_id(2).to(tl.int64)
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a += z * za
    pa = a + rm[:, None] * sa0 + rk[None, :] * sa1
    pb = b + z * zb + rk[:, None] * sb0 + rn[None, :] * sb1
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(pa, (rm[:, None] < M) & (k + rk[None, :] < K), other=0)
        y = tl.load(pb, (k + rk[:, None] < K) & (rn[None, :] < N), other=0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        pa += BK * sa1
        pb += BK * sb0
    tl.store(c + z * zc + rm[:, None] * sc0 + rn[None, :] * sc1, acc, (rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def attention(q, k, v, o, stride_h, stride_n, N,
              BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):  # fmt: skip
    start, head = tl.program_id(0) * BM, tl.program_id(1).to(tl.int64) * stride_h
    rm, rn, rd = start + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    x = tl.load(q + head + rm[:, None] * stride_n + rd[None, :])
    low = start if CAUSAL else 0
    keys = k + head + (low + rn)[None, :] * stride_n + rd[:, None]
    values = v + head + (low + rn)[:, None] * stride_n + rd[None, :]
    acc = tl.zeros((BM, D), tl.float32)
    for n in tl.range(low, N, BN):
        n = tl.multiple_of(n, BN)
        s = tl.dot(x, tl.load(keys), input_precision="ieee")
        s = tl.where(rm[:, None] >= n + rn[None, :], s, 0.0)
        acc = tl.dot(s, tl.load(values), acc, input_precision="ieee")
        keys += BN * stride_n
        values += BN * stride_n
    tl.store(o + head + rm[:, None] * stride_n + rd[None, :], acc)


@triton.jit
def rows(x, y, stride, N, B: tl.constexpr, WAY: tl.constexpr):
    row = tl.program_id(0)
    if WAY == 0:
        cols = tl.arange(0, B)
        held = tl.load(x + row * stride + cols, mask=cols < N, other=0.0)
        tl.store(y + row * stride + cols, held + tl.sum(held), mask=cols < N)
    elif WAY == 1:
        x += row.to(tl.int64) * stride
        cols = tl.arange(0, B)
        held = tl.load(x + cols, mask=cols < N, other=float("nan"))
        tl.store(y + row * stride + cols, tl.where(held != held, 1.0, held), mask=cols < N)
    else:
        i = 0
        while i < N:
            cols = i + tl.arange(0, B)
            tl.store(y + row * stride + cols, tl.load(x + row * stride + cols, mask=cols < N), mask=cols < N)
            i += B


@triton.jit
def copy(x, sx0, sx1, y, sy0, sy1, M, N, BM: tl.constexpr, BN: tl.constexpr, FORM: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    if FORM == 0:
        mask = (m[:, None] < M) & (n[None, :] < N)
    elif FORM == 1:
        mask = (m[:, None] <= M - 1) & (N > n[None, :])
    elif FORM == 2:
        mask = (M - 1 >= m)[:, None] & (n + 1 < N)[None, :]
    elif FORM == 3:
        mask = (2 * m[:, None] + 1 < 2 * M) & (3 * n[None, :] <= 3 * N - 4)
    elif FORM == 4:
        mask = (m[:, None] < M) & (n[None, :] < N) & (n[None, :] < 7) & (m[:, None] < M // 2)
    elif FORM == 5:
        mask = (tl.program_id(0) * BM < M - tl.arange(0, BM))[:, None] & (n[None, :] - N < -2)
    elif FORM == 6:
        mask = (m[:, None] >= 0) & (n[None, :] > 4) & (m[:, None] < M) & (n[None, :] < N)
    else:
        mask = (m[:, None] < M) & (n[None, :].to(tl.int64) < N) & (tl.arange(0, BN)[None, :] < BN)
    px = x + m[:, None] * sx0 + n[None, :] * sx1
    tl.store(y + (m[:, None] * sy0 + n[None, :] * sy1), tl.load(px, mask=mask), mask=mask)


@triton.jit
def from_the_end(x, y, N, B: tl.constexpr, WAY: tl.constexpr):
    if WAY == 0:
        block = tl.num_programs(0) - 1 - tl.program_id(0)
    else:
        block = tl.num_programs(0) - tl.program_id(0) - 1
    i = block * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < N), mask=i < N)


@triton.jit
def halo(x, y, N, PAD, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    i = o - PAD
    tl.store(y + o, tl.load(x + i, mask=(i >= 0) & (i < N), other=0.0))


@triton.jit
def shifted(x, N, SHIFT, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, i.to(tl.float32), mask=i + SHIFT < N)


@triton.jit
def cut_sequences(x, y, starts, B: tl.constexpr, D: tl.constexpr):
    sequence = tl.program_id(0)
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    i, d = tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, D)
    place = (first + i[:, None]) * D + d[None, :]
    tl.store(y + place, tl.load(x + place, mask=i[:, None] < length) * 2, mask=i[:, None] < length)
