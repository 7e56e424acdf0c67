"""scans: the end of the last segment is read from an array of beginnings."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, starts, sums, total, B: tl.constexpr):
    pid = tl.program_id(0)
    start = tl.load(starts + pid)
    end = tl.load(starts + pid + 1)  # BUG out-of-bounds read: starts
    i = start + tl.arange(0, B)
    tl.store(sums + pid, tl.sum(tl.load(x + i, mask=i < end, other=0.0), axis=0))


@deuteron.jit
def right(x, starts, sums, total, B: tl.constexpr):
    pid = tl.program_id(0)
    start = tl.load(starts + pid)
    end = tl.load(starts + pid + 1, mask=pid + 1 < tl.num_programs(0), other=total)
    i = start + tl.arange(0, B)
    tl.store(sums + pid, tl.sum(tl.load(x + i, mask=i < end, other=0.0), axis=0))


def launch(kernel):
    x = np.random.default_rng(0).random(20, np.float32)
    kernel[(3,)](x, np.array([0, 5, 11], np.int32), np.zeros(3, np.float32), 20, B=16)
