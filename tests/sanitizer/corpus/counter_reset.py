"""atomics: the program with the highest number, not the one that comes last, sets the sum back by a plain store."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, total, B: tl.constexpr):
    p = tl.program_id(0)
    tl.atomic_add(total, tl.sum(tl.load(x + p * B + tl.arange(0, B))))
    if p == tl.num_programs(0) - 1:
        tl.store(total, 0.0)  # BUG data race: total


@deuteron.jit
def right(x, total, B: tl.constexpr):
    p = tl.program_id(0)
    tl.atomic_add(total, tl.sum(tl.load(x + p * B + tl.arange(0, B))))
    if p == tl.num_programs(0) - 1:
        tl.atomic_xchg(total, 0.0)


def launch(kernel):
    kernel[(4,)](np.ones(32, np.float32), np.zeros(1, np.float32), B=8)
