"""scatter: two programs have the same target."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, index, y, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + tl.load(index + i), tl.load(x + i))  # BUG data race: y


@deuteron.jit
def right(x, index, y, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(y + tl.load(index + i), tl.load(x + i))


def launch(kernel):
    x = np.random.default_rng(0).random(32, np.float32)
    index = np.arange(32, dtype=np.int32)
    index[20] = 3
    kernel[(2,)](x, index, np.zeros(32, np.float32), B=16)
