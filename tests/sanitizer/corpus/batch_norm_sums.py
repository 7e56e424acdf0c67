"""norms: programs add to the sums of channels by load and store."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, sums, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    old = tl.load(sums + i, mask=i < n, other=0.0)  # BUG data race: sums
    tl.store(sums + i, old + v, mask=i < n)  # BUG data race: sums


@deuteron.jit
def right(x, sums, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    tl.atomic_add(sums + i, v, mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random((6, 12), np.float32)
    kernel[(6,)](x, np.zeros(12, np.float32), 12, B=16)
