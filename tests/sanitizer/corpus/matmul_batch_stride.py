"""matmul: matrices of a batch of b are taken to be as large as those of a."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a += tl.program_id(2) * M * K
    b += tl.program_id(2) * M * K
    c += tl.program_id(2) * M * N
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(
            b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0
        )  # BUG out-of-bounds read: b
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@deuteron.jit
def right(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a += tl.program_id(2) * M * K
    b += tl.program_id(2) * K * N
    c += tl.program_id(2) * M * N
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def launch(kernel):
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 40, 32), np.float32), rng.random((3, 32, 24), np.float32)
    c = np.zeros((3, 40, 24), np.float32)
    kernel[(3, 2, 3)](a, b, c, 40, 24, 32, BM=16, BN=16, BK=16)
