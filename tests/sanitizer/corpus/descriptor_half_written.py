"""descriptors: the second kernel reads rows of the scratch array that the first one has not written."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def first(scratch, M, N: tl.constexpr, B: tl.constexpr):
    rows = tl.make_tensor_descriptor(scratch, [M, N], [N, 1], [B, N])
    rows.store([tl.program_id(0) * B, 0], tl.zeros((B, N), tl.float32))


@deuteron.jit
def faulty(scratch, y, M, N: tl.constexpr, B: tl.constexpr):
    rows = tl.make_tensor_descriptor(scratch, [M, N], [N, 1], [B, N])
    total = tl.sum(rows.load([tl.program_id(0) * B + B, 0]), axis=1)
    tl.store(y + tl.program_id(0) * B + tl.arange(0, B), total)  # BUG use of never-written memory: scratch


@deuteron.jit
def right(scratch, y, M, N: tl.constexpr, B: tl.constexpr):
    rows = tl.make_tensor_descriptor(scratch, [M, N], [N, 1], [B, N])
    total = tl.sum(rows.load([tl.program_id(0) * B, 0]), axis=1)
    tl.store(y + tl.program_id(0) * B + tl.arange(0, B), total)


def launch(kernel):
    scratch, y = np.empty((12, 8), np.float32), np.zeros(8, np.float32)
    first[(2,)](scratch, 12, N=8, B=4)
    kernel[(2,)](scratch, y, 12, N=8, B=4)
