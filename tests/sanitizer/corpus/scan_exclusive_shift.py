"""scans: sums are stored one place on, the last one behind the array."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i + 1, tl.cumsum(v, axis=0), mask=i < n)  # BUG out-of-bounds write: y


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i + 1, tl.cumsum(v, axis=0), mask=i + 1 < n)


def launch(kernel):
    x = np.random.default_rng(0).random(13, np.float32)
    kernel[(1,)](x, np.zeros_like(x), 13, B=16)
