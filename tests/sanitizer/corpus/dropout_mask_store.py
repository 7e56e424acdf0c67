"""masks: the mask of what was kept is stored for elements that do not exist."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, kept, n, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    keep = tl.rand(seed, i) > 0.5
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(keep, 2 * v, 0.0), mask=i < n)
    tl.store(kept + i, keep)  # BUG out-of-bounds write: kept


@deuteron.jit
def right(x, y, kept, n, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    keep = tl.rand(seed, i) > 0.5
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(keep, 2 * v, 0.0), mask=i < n)
    tl.store(kept + i, keep, mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    kernel[(4,)](x, np.zeros_like(x), np.zeros(50, np.int8), 50, 7, B=16)
