"""loops: a stencil reads the element before the first."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    left = tl.load(x + i - 1, mask=i < n, other=0.0)  # BUG out-of-bounds read: x
    right_ = tl.load(x + i + 1, mask=i + 1 < n, other=0.0)
    tl.store(y + i, left + right_, mask=i < n)


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    left = tl.load(x + i - 1, mask=(i > 0) & (i < n), other=0.0)
    right_ = tl.load(x + i + 1, mask=i + 1 < n, other=0.0)
    tl.store(y + i, left + right_, mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    kernel[(4,)](x, np.zeros_like(x), 50, B=16)
