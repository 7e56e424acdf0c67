"""atomics: programs take places in a queue by load and store."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, counter, out, B: tl.constexpr):
    i = tl.arange(0, B)
    place = tl.load(counter)  # BUG data race: counter
    tl.store(counter, place + B)  # BUG data race: counter
    tl.store(out + place + i, tl.load(x + tl.program_id(0) * B + i))


@deuteron.jit
def right(x, counter, out, B: tl.constexpr):
    i = tl.arange(0, B)
    place = tl.atomic_add(counter, B)
    tl.store(out + place + i, tl.load(x + tl.program_id(0) * B + i))


def launch(kernel):
    x = np.random.default_rng(0).random(64, np.float32)
    kernel[(4,)](x, np.zeros(1, np.int32), np.zeros(64, np.float32), B=16)
