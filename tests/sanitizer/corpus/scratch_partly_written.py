"""never written: the second kernel reads more of the scratch array than the first has written."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def total(scratch, y, B: tl.constexpr):
    tl.store(y, tl.sum(tl.load(scratch + tl.arange(0, B)), axis=0))  # BUG use of never-written memory: scratch


@deuteron.jit
def faulty(x, scratch, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(scratch + i, tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


@deuteron.jit
def right(x, scratch, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(scratch + i, tl.load(x + i, mask=i < n, other=0.0))


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    scratch = np.empty(64, np.float32)
    kernel[(4,)](x, scratch, 50, B=16)
    total[(1,)](scratch, np.zeros(1, np.float32), B=64)
