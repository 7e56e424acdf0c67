"""views: the elements before and behind a view are the base array's, not the view's."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    inside = i < n
    v = tl.load(x + i - 1, mask=inside)  # BUG out-of-bounds read: x
    tl.store(y + i, v, mask=inside)


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    inside = i < n
    v = tl.load(x + i - 1, mask=inside & (i > 0), other=0.0)
    tl.store(y + i, v, mask=inside)


def launch(kernel):
    base = np.random.default_rng(0).random(20, np.float32)
    kernel[(1,)](base[4:16], np.zeros(12, np.float32), 12, B=16)
