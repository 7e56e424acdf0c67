"""never written: the result is added to an output that begins without contents."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    old = tl.load(y + i, mask=i < n)
    tl.store(y + i, old + v, mask=i < n)  # BUG use of never-written memory: y


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v, mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    kernel[(4,)](x, np.empty(50, np.float32), 50, B=16)
