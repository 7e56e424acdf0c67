"""scans: the running sum of a long row goes on over one block too many."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    carry = tl.zeros((), tl.float32)
    for start in range(0, n + B, B):
        i = start + tl.arange(0, B)
        v = tl.load(x + i)  # BUG out-of-bounds read: x
        tl.store(y + i, carry + tl.cumsum(v, axis=0), mask=i < n)
        carry += tl.sum(v, axis=0)


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    carry = tl.zeros((), tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        v = tl.load(x + i)
        tl.store(y + i, carry + tl.cumsum(v, axis=0), mask=i < n)
        carry += tl.sum(v, axis=0)


def launch(kernel):
    x = np.random.default_rng(0).random(64, np.float32)
    kernel[(1,)](x, np.zeros_like(x), 64, B=16)
