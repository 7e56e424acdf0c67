"""loops: a while loop goes on at the element behind the last."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n):
    i = 0
    total = 0.0
    while i <= n:
        total += tl.load(x + i)  # BUG out-of-bounds read: x
        i += 1
    tl.store(y, total)


@deuteron.jit
def right(x, y, n):
    i = 0
    total = 0.0
    while i < n:
        total += tl.load(x + i)
        i += 1
    tl.store(y, total)


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    kernel[(1,)](x, np.zeros_like(x), 50)
