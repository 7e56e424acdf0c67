"""atomics: slots of masked-off elements are used as addresses."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, counter, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    slot = tl.atomic_add(counter + 0 * i, 1, mask=v > 2)
    tl.store(out + slot, v)  # BUG use of masked-off values: counter


@deuteron.jit
def right(x, counter, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    slot = tl.atomic_add(counter + 0 * i, 1, mask=v > 2)
    tl.store(out + slot, v, mask=v > 2)


def launch(kernel):
    x = np.random.default_rng(0).integers(0, 8, 13).astype(np.int32)
    kernel[(1,)](x, np.zeros(1, np.int32), np.zeros(13, np.int32), 13, B=16)
