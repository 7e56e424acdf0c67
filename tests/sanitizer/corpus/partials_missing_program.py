"""never written: one of the programs that write partial results is not launched."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def total(parts, y, B: tl.constexpr):
    tl.store(y, tl.sum(tl.load(parts + tl.arange(0, B)), axis=0))  # BUG use of never-written memory: parts


@deuteron.jit
def faulty(x, parts, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + i), axis=0))


@deuteron.jit
def right(x, parts, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + i), axis=0))


def launch(kernel):
    parts = np.empty(4, np.float32)
    kernel[(2,) if kernel is faulty else (4,)](np.random.default_rng(0).random(64, np.float32), parts, B=16)
    total[(1,)](parts, np.zeros(1, np.float32), B=4)
