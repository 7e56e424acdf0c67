"""block pointers: only columns are checked."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, M, N, B: tl.constexpr):
    source = tl.make_block_ptr(
        x, shape=(M, N), strides=(N, 1), offsets=(tl.program_id(0) * B, 0), block_shape=(B, B), order=(1, 0)
    )
    target = tl.make_block_ptr(
        y, shape=(M, N), strides=(N, 1), offsets=(tl.program_id(0) * B, 0), block_shape=(B, B), order=(1, 0)
    )
    v = tl.load(source, boundary_check=(1,))  # BUG out-of-bounds read: x
    tl.store(target, v, boundary_check=(0, 1))


@deuteron.jit
def right(x, y, M, N, B: tl.constexpr):
    source = tl.make_block_ptr(
        x, shape=(M, N), strides=(N, 1), offsets=(tl.program_id(0) * B, 0), block_shape=(B, B), order=(1, 0)
    )
    target = tl.make_block_ptr(
        y, shape=(M, N), strides=(N, 1), offsets=(tl.program_id(0) * B, 0), block_shape=(B, B), order=(1, 0)
    )
    v = tl.load(source, boundary_check=(0, 1))
    tl.store(target, v, boundary_check=(0, 1))


def launch(kernel):
    x = np.random.default_rng(0).random((20, 12), np.float32)
    kernel[(2,)](x, np.zeros_like(x), 20, 12, B=16)
