"""loops: the pointer moves on before the load instead of after it."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    at = x + tl.arange(0, B)
    for _ in range(0, n, B):
        at += B
        total += tl.load(at)  # BUG out-of-bounds read: x
    tl.store(y, tl.sum(total, axis=0))


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    at = x + tl.arange(0, B)
    for _ in range(0, n, B):
        total += tl.load(at)
        at += B
    tl.store(y, tl.sum(total, axis=0))


def launch(kernel):
    x = np.random.default_rng(0).random(48, np.float32)
    kernel[(1,)](x, np.zeros_like(x), 48, B=16)
