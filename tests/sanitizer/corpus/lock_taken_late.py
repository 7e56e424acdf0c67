"""atomics: a program changes what all have read before it takes the lock that would order it behind them."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, total, lock, B: tl.constexpr):
    i = tl.arange(0, B)
    s = tl.sum(tl.load(x + i))
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(x + i, 0.0)  # BUG data race: x
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + s)
    tl.atomic_xchg(lock, 0)


@deuteron.jit
def right(x, total, lock, B: tl.constexpr):
    i = tl.arange(0, B)
    s = tl.sum(tl.load(x + i))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + s)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(x + i, 0.0)
    tl.atomic_xchg(lock, 0)


def launch(kernel):
    kernel[(3,)](np.ones(8, np.float32), np.zeros(1, np.float32), np.zeros(1, np.int32), B=8)
