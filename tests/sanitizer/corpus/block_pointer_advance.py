"""block pointers: the block moves along the wrong dimension."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, M, K, B: tl.constexpr):
    source = tl.make_block_ptr(x, shape=(M, K), strides=(K, 1), offsets=(0, 0), block_shape=(B, B), order=(1, 0))
    total = tl.zeros((B, B), tl.float32)
    for _ in range(0, K, B):
        total += tl.load(source)  # BUG out-of-bounds read: x
        source = tl.advance(source, (B, 0))
    tl.store(y + tl.arange(0, B), tl.sum(total, axis=1))


@deuteron.jit
def right(x, y, M, K, B: tl.constexpr):
    source = tl.make_block_ptr(x, shape=(M, K), strides=(K, 1), offsets=(0, 0), block_shape=(B, B), order=(1, 0))
    total = tl.zeros((B, B), tl.float32)
    for _ in range(0, K, B):
        total += tl.load(source)
        source = tl.advance(source, (0, B))
    tl.store(y + tl.arange(0, B), tl.sum(total, axis=1))


def launch(kernel):
    x = np.random.default_rng(0).random((16, 48), np.float32)
    kernel[(1,)](x, np.zeros(16, np.float32), 16, 48, B=16)
