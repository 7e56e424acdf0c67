"""scans: each block begins with the last sum of the block before, which runs beside it."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, totals, B: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * B + tl.arange(0, B)
    carry = tl.load(y + pid * B - 1, mask=pid > 0, other=0.0)  # BUG data race: y
    tl.store(y + i, carry + tl.cumsum(tl.load(x + i), axis=0))  # BUG data race: y


@deuteron.jit
def right(x, y, totals, B: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * B + tl.arange(0, B)
    carry = tl.load(totals + pid - 1, mask=pid > 0, other=0.0)
    tl.store(y + i, carry + tl.cumsum(tl.load(x + i), axis=0))


def launch(kernel):
    x = np.random.default_rng(0).random(64, np.float32)
    kernel[(4,)](x, np.zeros(64, np.float32), np.zeros(4, np.float32), B=16)
