"""softmax: programs that take several rows go on for one too many."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, rows, n, B: tl.constexpr):
    i = tl.arange(0, B)
    for row in range(tl.program_id(0), rows + 1, tl.num_programs(0)):
        v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))  # BUG out-of-bounds read: x
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(y + row * n + i, e / tl.sum(e, axis=0), mask=i < n)  # BUG out-of-bounds write: y


@deuteron.jit
def right(x, y, rows, n, B: tl.constexpr):
    i = tl.arange(0, B)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(y + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random((6, 12), np.float32)
    y = np.zeros_like(x)
    kernel[(3,)](x, y, 6, 12, B=16)
