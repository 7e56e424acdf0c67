"""atomics: the largest element is looked for from what happens to be in memory."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, largest, B: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    tl.atomic_max(largest, tl.max(v, axis=0).to(tl.int64))  # BUG use of never-written memory: largest


@deuteron.jit
def right(x, largest, B: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    tl.atomic_max(largest, tl.max(v, axis=0).to(tl.int64))


def launch(kernel):
    x = np.random.default_rng(0).integers(0, 8, 64).astype(np.int32)
    kernel[(4,)](x, (np.empty if kernel is faulty else np.zeros)(1, np.int64), B=16)
