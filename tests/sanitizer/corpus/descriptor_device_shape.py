"""descriptors: a kernel makes one with the shape rounded up to blocks."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, M, N, B: tl.constexpr):
    target = tl.make_tensor_descriptor(y, shape=[tl.cdiv(M, B) * B, N], strides=[N, 1], block_shape=[B, B])
    i = tl.program_id(0) * B
    m = i + tl.arange(0, B)
    n = tl.arange(0, B)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N), other=0.0)
    target.store([i, 0], v)  # BUG out-of-bounds write: y


@deuteron.jit
def right(x, y, M, N, B: tl.constexpr):
    target = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    i = tl.program_id(0) * B
    m = i + tl.arange(0, B)
    n = tl.arange(0, B)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N), other=0.0)
    target.store([i, 0], v)


def launch(kernel):
    x = np.random.default_rng(0).random((20, 12), np.float32)
    kernel[(2,)](x, np.zeros_like(x), 20, 12, B=16)
