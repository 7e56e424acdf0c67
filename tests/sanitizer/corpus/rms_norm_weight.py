"""norms: the weight is read without a mask."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, w, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * n + i
    v = tl.load(x + at, mask=i < n, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / n + 1e-6)
    tl.store(y + at, v * scale * tl.load(w + i), mask=i < n)  # BUG out-of-bounds read: w


@deuteron.jit
def right(x, w, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * n + i
    v = tl.load(x + at, mask=i < n, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / n + 1e-6)
    tl.store(y + at, v * scale * tl.load(w + i, mask=i < n), mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random((6, 12), np.float32)
    y = np.zeros_like(x)
    kernel[(6,)](x, np.ones(12, np.float32), y, 12, B=16)
