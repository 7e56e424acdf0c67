"""atomics: counts are read, raised and written back."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, counts, B: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    old = tl.load(counts + v)  # BUG data race: counts
    tl.store(counts + v, old + 1)  # BUG data race: counts


@deuteron.jit
def right(x, counts, B: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    tl.atomic_add(counts + v, 1)


def launch(kernel):
    x = np.random.default_rng(0).integers(0, 8, 64).astype(np.int32)
    kernel[(4,)](x, np.zeros(8, np.int32), B=16)
