"""norms: the mean takes in masked-off elements."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * n + i
    v = tl.load(x + at, mask=i < n)
    mean = tl.sum(v, axis=0) / n
    tl.store(y + at, v - mean, mask=i < n)  # BUG use of masked-off values: x


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * n + i
    v = tl.load(x + at, mask=i < n, other=0.0)
    mean = tl.sum(v, axis=0) / n
    tl.store(y + at, v - mean, mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random((6, 12), np.float32)
    y = np.zeros_like(x)
    kernel[(6,)](x, y, 12, B=16)
