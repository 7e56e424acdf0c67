"""gather: half as many bytes are packed as there are numbers, and the index counts numbers."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(packed, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    byte = tl.load(packed + i, mask=i < n, other=0)  # BUG out-of-bounds read: packed
    tl.store(y + i, (byte >> (4 * (i % 2)).to(tl.uint8)) & 15, mask=i < n)


@deuteron.jit
def right(packed, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    byte = tl.load(packed + i // 2, mask=i < n, other=0)
    tl.store(y + i, (byte >> (4 * (i % 2)).to(tl.uint8)) & 15, mask=i < n)


def launch(kernel):
    packed = np.random.default_rng(0).integers(0, 256, 25).astype(np.uint8)
    kernel[(4,)](packed, np.zeros(50, np.uint8), 50, B=16)
