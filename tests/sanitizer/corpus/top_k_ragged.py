"""masks: rows of different length are sorted with what lies behind them."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, lengths, y, width, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + row * width + i, mask=i < tl.load(lengths + row))
    tl.store(y + row, tl.max(v, axis=0))  # BUG use of masked-off values: x


@deuteron.jit
def right(x, lengths, y, width, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + row * width + i, mask=i < tl.load(lengths + row), other=-1.0)
    tl.store(y + row, tl.max(v, axis=0))


def launch(kernel):
    x = np.random.default_rng(0).random((3, 16), np.float32)
    kernel[(3,)](x, np.array([16, 5, 9], np.int32), np.zeros(3, np.float32), 16, B=16)
