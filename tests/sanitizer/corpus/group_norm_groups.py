"""norms: groups of channels are counted as if each had one channel more."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, size, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * (size + 1) + i
    v = tl.load(x + at, mask=i < size, other=0.0)  # BUG out-of-bounds read: x
    tl.store(y + at, v - tl.sum(v, axis=0) / size, mask=i < size)  # BUG out-of-bounds write: y


@deuteron.jit
def right(x, y, size, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * size + i
    v = tl.load(x + at, mask=i < size, other=0.0)
    tl.store(y + at, v - tl.sum(v, axis=0) / size, mask=i < size)


def launch(kernel):
    x = np.random.default_rng(0).random((6, 12), np.float32)
    y = np.zeros_like(x)
    kernel[(6,)](x, y, 12, B=16)
