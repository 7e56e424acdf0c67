"""scans: a sum from the end takes in the masked-off tail first."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * n + i
    v = tl.load(x + at, mask=i < n)
    tl.store(y + at, tl.cumsum(v, axis=0, reverse=True), mask=i < n)  # BUG use of masked-off values: x


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * n + i
    v = tl.load(x + at, mask=i < n, other=0.0)
    tl.store(y + at, tl.cumsum(v, axis=0, reverse=True), mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random((6, 12), np.float32)
    y = np.zeros_like(x)
    kernel[(6,)](x, y, 12, B=16)
