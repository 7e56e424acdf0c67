"""loops: an array is turned round in place by programs for all of it instead of its first half."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, n, half, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = i < n
    a = tl.load(x + i, mask=inside)
    b = tl.load(x + n - 1 - i, mask=inside)
    tl.store(x + i, b, mask=inside)  # BUG data race: x
    tl.store(x + n - 1 - i, a, mask=inside)  # BUG data race: x


@deuteron.jit
def right(x, n, half, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = i < half
    a = tl.load(x + i, mask=inside)
    b = tl.load(x + n - 1 - i, mask=inside)
    tl.store(x + i, b, mask=inside)
    tl.store(x + n - 1 - i, a, mask=inside)


def launch(kernel):
    x = np.random.default_rng(0).random(64, np.float32)
    kernel[(4,)](x, 64, 32, B=16)
