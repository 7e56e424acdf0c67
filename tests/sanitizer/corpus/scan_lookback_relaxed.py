"""scans: a block waits for the sum of the one before by a flag that orders nothing."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, sums, flags, B: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * B + tl.arange(0, B)
    v = tl.load(x + i)
    carry = tl.sum(v, axis=0) * 0
    if pid > 0:
        while tl.atomic_add(flags + pid - 1, 0, sem="relaxed") == 0:
            pass
        carry = tl.load(sums + pid - 1)  # BUG data race: sums
    tl.store(sums + pid, carry + tl.sum(v, axis=0))
    tl.atomic_xchg(flags + pid, 1, sem="relaxed")
    tl.store(y + i, carry + tl.cumsum(v, axis=0))


@deuteron.jit
def right(x, y, sums, flags, B: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * B + tl.arange(0, B)
    v = tl.load(x + i)
    carry = tl.sum(v, axis=0) * 0
    if pid > 0:
        while tl.atomic_add(flags + pid - 1, 0, sem="acquire") == 0:
            pass
        carry = tl.load(sums + pid - 1)
    tl.store(sums + pid, carry + tl.sum(v, axis=0))
    tl.atomic_xchg(flags + pid, 1, sem="release")
    tl.store(y + i, carry + tl.cumsum(v, axis=0))


def launch(kernel):
    x = np.random.default_rng(0).random(64, np.float32)
    kernel[(4,)](x, np.zeros_like(x), np.zeros(4, np.float32), np.zeros(4, np.int32), B=16)
