"""block pointers: the sum begins with what is in an output that nobody has set to zero."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, y, n, B: tl.constexpr):
    a = tl.make_block_ptr(x, (n,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    b = tl.make_block_ptr(y, (n,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    total = tl.load(b, boundary_check=(0,)) + tl.load(a, boundary_check=(0,))
    tl.store(b, total, boundary_check=(0,))  # BUG use of never-written memory: y


@deuteron.jit
def right(x, y, n, B: tl.constexpr):
    a = tl.make_block_ptr(x, (n,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    b = tl.make_block_ptr(y, (n,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    tl.store(b, tl.load(a, boundary_check=(0,)), boundary_check=(0,))


def launch(kernel):
    kernel[(3,)](np.ones(20, np.float32), np.empty(20, np.float32), 20, B=8)
