"""promises: the kernel is told that a size is a multiple of the block, and it is not."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    tl.assume(n % B == 0)  # BUG false assertion
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    tl.assume(n > 0)
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    kernel[(4,)](x, np.zeros_like(x), 50, B=16)
