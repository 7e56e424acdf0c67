"""masks: padding at the left makes negative indices, and only the right end is masked."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i - 3, mask=i - 3 < n, other=0.0)  # BUG out-of-bounds read: x
    tl.store(y + i, v, mask=i < n)


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i - 3, mask=(i >= 3) & (i - 3 < n), other=0.0)
    tl.store(y + i, v, mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    kernel[(4,)](x, np.zeros_like(x), 50, B=16)
