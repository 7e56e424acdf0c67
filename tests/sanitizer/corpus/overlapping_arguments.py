"""views: input and output are views of one array, shifted by one element."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)  # BUG data race: x
    tl.store(y + i, v, mask=i < n)


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v, mask=i < n)


def launch(kernel):
    base = np.random.default_rng(0).random(65, np.float32)
    kernel[(4,)](base[:-1], base[1:] if kernel is faulty else np.zeros(64, np.float32), 64, B=16)
