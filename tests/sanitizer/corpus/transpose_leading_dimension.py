"""transposition: rows of the result are taken to be as long as those of the input."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, M, N, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.arange(0, B)
    inside = (m[:, None] < M) & (n[None, :] < N)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=inside)
    tl.store(y + n[None, :] * N + m[:, None], v, mask=inside)  # BUG data race: y


@deuteron.jit
def right(x, y, M, N, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.arange(0, B)
    inside = (m[:, None] < M) & (n[None, :] < N)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=inside)
    tl.store(y + n[None, :] * M + m[:, None], v, mask=inside)


def launch(kernel):
    x = np.random.default_rng(0).random((20, 12), np.float32)
    kernel[(2,)](x, np.zeros((12, 20), np.float32), 20, 12, B=16)
