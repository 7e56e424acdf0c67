"""descriptors: programs are half a block apart, so that each writes what the next one writes."""

import numpy as np

import deuteron
import deuteron.language as tl
from deuteron.tools.tensor_descriptor import TensorDescriptor


@deuteron.jit
def faulty(x, y, B: tl.constexpr):
    i = tl.program_id(0) * (B // 2)
    y.store([i, 0], x.load([i, 0]))  # BUG data race: y


@deuteron.jit
def right(x, y, B: tl.constexpr):
    i = tl.program_id(0) * B
    y.store([i, 0], x.load([i, 0]))


def launch(kernel):
    x = np.random.default_rng(0).random((32, 16), np.float32)
    block = [16, 16]
    kernel[(2,)](TensorDescriptor.from_tensor(x, block), TensorDescriptor.from_tensor(np.zeros_like(x), block), B=16)
