"""masks: one condition is enough where both are needed."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, M, N, B: tl.constexpr):
    m = tl.arange(0, B)
    n = tl.arange(0, B)
    at = m[:, None] * N + n[None, :]
    v = tl.load(x + at, mask=(m[:, None] < M) | (n[None, :] < N), other=0.0)  # BUG out-of-bounds read: x
    tl.store(y + at, v, mask=(m[:, None] < M) & (n[None, :] < N))


@deuteron.jit
def right(x, y, M, N, B: tl.constexpr):
    m = tl.arange(0, B)
    n = tl.arange(0, B)
    at = m[:, None] * N + n[None, :]
    v = tl.load(x + at, mask=(m[:, None] < M) & (n[None, :] < N), other=0.0)
    tl.store(y + at, v, mask=(m[:, None] < M) & (n[None, :] < N))


def launch(kernel):
    x = np.random.default_rng(0).random((10, 12), np.float32)
    kernel[(1,)](x, np.zeros_like(x), 10, 12, B=16)
