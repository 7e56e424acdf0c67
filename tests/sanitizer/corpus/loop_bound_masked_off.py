"""loops: programs without a row of their own loop as often as undefined memory says."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(lengths, x, y, rows, B: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(lengths + row, mask=row < rows)
    total = 0.0
    for i in range(length):  # BUG use of masked-off values: lengths
        total += tl.load(x + row * B + i)
    tl.store(y + row, total, mask=row < rows)


@deuteron.jit
def right(lengths, x, y, rows, B: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(lengths + row, mask=row < rows, other=0)
    total = 0.0
    for i in range(length):
        total += tl.load(x + row * B + i)
    tl.store(y + row, total, mask=row < rows)


def launch(kernel):
    x = np.random.default_rng(0).random((3, 8), np.float32)
    kernel[(4,)](np.array([3, 8, 1], np.int32), x, np.zeros(3, np.float32), 3, B=8)
