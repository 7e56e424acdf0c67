"""gather: an index is as large as the table."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(table, index, y, width, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.load(index + tl.program_id(0))
    v = tl.load(table + row * width + i, mask=i < width)  # BUG out-of-bounds read: table
    tl.store(y + tl.program_id(0) * width + i, v, mask=i < width)


@deuteron.jit
def right(table, index, y, width, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.load(index + tl.program_id(0))
    v = tl.load(table + row * width + i, mask=(i < width) & (row < 10), other=0.0)
    tl.store(y + tl.program_id(0) * width + i, v, mask=i < width)


def launch(kernel):
    table = np.random.default_rng(0).random((10, 12), np.float32)
    kernel[(3,)](table, np.array([2, 10, 9], np.int32), np.zeros((3, 12), np.float32), 12, B=16)
