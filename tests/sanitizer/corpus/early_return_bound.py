"""loops: a program that has nothing to do does not return."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n):
    pid = tl.program_id(0)
    if pid > n:
        return
    tl.store(y + pid, tl.load(x + pid))  # BUG out-of-bounds read: x; out-of-bounds write: y


@deuteron.jit
def right(x, y, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    tl.store(y + pid, tl.load(x + pid))


def launch(kernel):
    x = np.random.default_rng(0).random(5, np.float32)
    kernel[(8,)](x, np.zeros_like(x), 5)
