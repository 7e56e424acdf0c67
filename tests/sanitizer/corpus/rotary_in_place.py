"""attention: two programs turn the halves of a head in place, and each reads both."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, half, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(x + half + i)
    if tl.program_id(0) == 0:
        tl.store(x + i, a - b)  # BUG data race: x
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(x + half + i, a + b)  # BUG data race: x


@deuteron.jit
def right(x, half, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(x + half + i)
    if tl.program_id(0) == 0:
        tl.store(x + i, a - b)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(x + half + i, a + b)


def launch(kernel):
    x = np.random.default_rng(0).random(32, np.float32)
    kernel[(2,) if kernel is faulty else (1,)](x, 16, B=16)
