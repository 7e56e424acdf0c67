"""atomics: the program that comes last adds up what the others stored, without order."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, parts, counter, out, B: tl.constexpr):
    i = tl.arange(0, B)
    pid = tl.program_id(0)
    tl.store(parts + pid, tl.sum(tl.load(x + pid * B + i), axis=0))
    done = tl.atomic_add(counter, 1, sem="relaxed")
    if done == tl.num_programs(0) - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, 4)), axis=0))  # BUG data race: parts


@deuteron.jit
def right(x, parts, counter, out, B: tl.constexpr):
    i = tl.arange(0, B)
    pid = tl.program_id(0)
    tl.store(parts + pid, tl.sum(tl.load(x + pid * B + i), axis=0))
    done = tl.atomic_add(counter, 1)
    if done == tl.num_programs(0) - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, 4)), axis=0))


def launch(kernel):
    x = np.random.default_rng(0).random(64, np.float32)
    kernel[(4,)](x, np.zeros(4, np.float32), np.zeros(1, np.int32), np.zeros(1, np.float32), B=16)
