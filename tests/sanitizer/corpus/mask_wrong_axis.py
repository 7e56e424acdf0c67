"""masks: columns are compared with the number of rows."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, M, N, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.arange(0, B)
    at = m[:, None] * N + n[None, :]
    inside = (m[:, None] < M) & (n[None, :] < M)
    tl.store(
        y + at, tl.load(x + at, mask=inside), mask=inside
    )  # BUG out-of-bounds read: x; out-of-bounds write: y; data race: y


@deuteron.jit
def right(x, y, M, N, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.arange(0, B)
    at = m[:, None] * N + n[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + at, tl.load(x + at, mask=inside), mask=inside)


def launch(kernel):
    x = np.random.default_rng(0).random((20, 10), np.float32)
    kernel[(2,)](x, np.zeros_like(x), 20, 10, B=16)
