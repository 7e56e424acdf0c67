"""softmax: of two passes over a long row the second one is not masked."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    x += tl.program_id(0) * n
    y += tl.program_id(0) * n
    largest = tl.full((), -float("inf"), tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        largest = tl.maximum(largest, tl.max(tl.load(x + i, mask=i < n, other=-float("inf")), axis=0))
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        tl.store(y + i, tl.exp(tl.load(x + i) - largest), mask=i < n)  # BUG out-of-bounds read: x


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    x += tl.program_id(0) * n
    y += tl.program_id(0) * n
    largest = tl.full((), -float("inf"), tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        largest = tl.maximum(largest, tl.max(tl.load(x + i, mask=i < n, other=-float("inf")), axis=0))
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        tl.store(y + i, tl.exp(tl.load(x + i, mask=i < n) - largest), mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random((6, 12), np.float32)
    y = np.zeros_like(x)
    kernel[(6,)](x, y, 12, B=8)
