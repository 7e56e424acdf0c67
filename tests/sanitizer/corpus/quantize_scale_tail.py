"""masks: the largest magnitude of a block counts what was masked off."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, q, scales, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    scale = tl.max(tl.abs(v), axis=0) / 127.0
    tl.store(scales + tl.program_id(0), scale)  # BUG use of masked-off values: x
    tl.store(q + i, (v / scale).to(tl.int8), mask=i < n)  # BUG use of masked-off values: x


@deuteron.jit
def right(x, q, scales, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    scale = tl.max(tl.abs(v), axis=0) / 127.0
    tl.store(scales + tl.program_id(0), scale)
    tl.store(q + i, (v / scale).to(tl.int8), mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    kernel[(4,)](x, np.zeros(50, np.int8), np.zeros(4, np.float32), 50, B=16)
