"""descriptors: the host says that the array has more rows than it has."""

import numpy as np

import deuteron
import deuteron.language as tl
from deuteron.tools.tensor_descriptor import TensorDescriptor


@deuteron.jit
def faulty(x, y, B: tl.constexpr):
    i = tl.program_id(0) * B
    y.store([i, 0], x.load([i, 0]))  # BUG out-of-bounds read: x


@deuteron.jit
def right(x, y, B: tl.constexpr):
    i = tl.program_id(0) * B
    y.store([i, 0], x.load([i, 0]))


def launch(kernel):
    x, y = np.random.default_rng(0).random((20, 16), np.float32), np.zeros((32, 16), np.float32)
    rows = 32 if kernel is faulty else 20
    kernel[(2,)](
        TensorDescriptor(x, [rows, 16], [16, 1], [16, 16]), TensorDescriptor(y, [32, 16], [16, 1], [16, 16]), B=16
    )
