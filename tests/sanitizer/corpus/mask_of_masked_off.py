"""masks: a flag that was not loaded decides what is stored."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(flags, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    keep = tl.load(flags + i, mask=i < n) > 0
    tl.store(y + i, i, mask=keep)  # BUG use of masked-off values: flags


@deuteron.jit
def right(flags, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    keep = tl.load(flags + i, mask=i < n) > 0
    tl.store(y + i, i, mask=keep & (i < n))


def launch(kernel):
    kernel[(1,)](np.array([0, 1, 1, 0, 1], np.int32), np.zeros(16, np.int32), 5, B=8)
