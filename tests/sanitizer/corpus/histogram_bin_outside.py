"""atomics: values above the last bin are counted behind the array."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, counts, B: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    tl.atomic_add(counts + v, 1)  # BUG out-of-bounds write: counts


@deuteron.jit
def right(x, counts, B: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    tl.atomic_add(counts + v, 1, mask=v < 8)


def launch(kernel):
    x = np.random.default_rng(0).integers(0, 12, 64).astype(np.int32)
    kernel[(4,)](x, np.zeros(8, np.int32), B=16)
