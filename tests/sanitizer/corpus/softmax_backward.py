"""softmax: the gradient's masked-off elements meet zeros, which does not make them zero."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(dy, y, dx, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * n + i
    p = tl.load(y + at, mask=i < n, other=0.0)
    g = tl.load(dy + at, mask=i < n)
    dot = tl.sum(p * g, axis=0)
    tl.store(dx + at, p * (g - dot), mask=i < n)  # BUG use of masked-off values: dy


@deuteron.jit
def right(dy, y, dx, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * n + i
    p = tl.load(y + at, mask=i < n, other=0.0)
    g = tl.load(dy + at, mask=i < n, other=0.0)
    dot = tl.sum(p * g, axis=0)
    tl.store(dx + at, p * (g - dot), mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random((6, 12), np.float32)
    y = np.zeros_like(x)
    kernel[(6,)](x, x, y, 12, B=16)
