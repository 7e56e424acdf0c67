"""descriptors: rows are said to be padded, which they are not."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N + 4, 1], block_shape=[B, B])
    v = source.load([tl.program_id(0) * B, 0])  # BUG out-of-bounds read: x
    m = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + m, tl.sum(v, axis=1), mask=m < M)


@deuteron.jit
def right(x, y, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    v = source.load([tl.program_id(0) * B, 0])
    m = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + m, tl.sum(v, axis=1), mask=m < M)


def launch(kernel):
    x = np.random.default_rng(0).random((20, 12), np.float32)
    kernel[(2,)](x, np.zeros(20, np.float32), 20, 12, B=16)
