"""norms: a lock whose atomics are relaxed orders nothing."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(dy, dw, locks, B: tl.constexpr, GROUPS: tl.constexpr):
    group = tl.program_id(0) % GROUPS
    i = tl.arange(0, B)
    v = tl.load(dy + tl.program_id(0) * B + i)
    while tl.atomic_cas(locks + group, 0, 1, sem="relaxed") == 1:
        pass
    old = tl.load(dw + group * B + i)  # BUG data race: dw
    tl.store(dw + group * B + i, old + v)  # BUG data race: dw
    tl.atomic_xchg(locks + group, 0, sem="relaxed")


@deuteron.jit
def right(dy, dw, locks, B: tl.constexpr, GROUPS: tl.constexpr):
    group = tl.program_id(0) % GROUPS
    i = tl.arange(0, B)
    v = tl.load(dy + tl.program_id(0) * B + i)
    while tl.atomic_cas(locks + group, 0, 1) == 1:
        pass
    old = tl.load(dw + group * B + i)
    tl.store(dw + group * B + i, old + v)
    tl.atomic_xchg(locks + group, 0)


def launch(kernel):
    dy = np.random.default_rng(0).random((6, 16), np.float32)
    kernel[(6,)](dy, np.zeros((2, 16), np.float32), np.zeros(2, np.int32), B=16, GROUPS=2)
