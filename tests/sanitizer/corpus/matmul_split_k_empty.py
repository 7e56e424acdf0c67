"""matmul: partial sums are added to an output that nobody has set to zero."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(tl.program_id(2) * BK, K, 2 * BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    tl.atomic_add(
        c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N)
    )  # BUG use of never-written memory: c


@deuteron.jit
def right(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(tl.program_id(2) * BK, K, 2 * BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    tl.atomic_add(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def launch(kernel):
    rng = np.random.default_rng(0)
    a, b = rng.random((24, 40), np.float32), rng.random((40, 40), np.float32)
    c = (np.empty if kernel is faulty else np.zeros)((24, 40), np.float32)
    kernel[(2, 3, 2)](a, b, c, 24, 40, 40, BM=16, BN=16, BK=16)
