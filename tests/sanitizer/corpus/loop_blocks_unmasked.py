"""loops: the number of blocks is rounded up, and the last one is not masked."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for block in range(tl.cdiv(n, B)):
        total += tl.load(x + block * B + tl.arange(0, B))  # BUG out-of-bounds read: x
    tl.store(y + tl.program_id(0), tl.sum(total, axis=0))


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for block in range(tl.cdiv(n, B)):
        total += tl.load(x + block * B + tl.arange(0, B), mask=block * B + tl.arange(0, B) < n, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(total, axis=0))


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    kernel[(4,)](x, np.zeros_like(x), 50, B=16)
