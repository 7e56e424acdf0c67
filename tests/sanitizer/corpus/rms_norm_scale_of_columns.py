"""norms: programs that share a row all store its scale."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, scales, n, B: tl.constexpr):
    i = tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    tl.store(scales + tl.program_id(0), tl.sum(v * v, axis=0))  # BUG data race: scales


@deuteron.jit
def right(x, scales, n, B: tl.constexpr):
    i = tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    tl.atomic_add(scales + tl.program_id(0), tl.sum(v * v, axis=0))


def launch(kernel):
    x = np.random.default_rng(0).random((6, 12), np.float32)
    kernel[(6, 2)](x, np.zeros(6, np.float32), 12, B=8)
