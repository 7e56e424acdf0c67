"""masks: indices of masked-off elements are used as they are."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(table, index, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.load(index + i, mask=i < n)
    v = tl.load(table + row)  # BUG use of masked-off values: index
    tl.store(y + i, v, mask=i < n)


@deuteron.jit
def right(table, index, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.load(index + i, mask=i < n, other=0)
    v = tl.load(table + row)
    tl.store(y + i, v, mask=i < n)


def launch(kernel):
    table = np.random.default_rng(0).random(30, np.float32)
    index = np.random.default_rng(0).integers(0, 30, 10).astype(np.int64)
    kernel[(1,)](table, index, np.zeros(10, np.float32), 10, B=16)
