"""convolution: the window of the last outputs reaches behind the input."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(x, w, y, n, TAPS: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for tap in range(TAPS):
        total += tl.load(w + tap) * tl.load(x + i + tap, mask=i < n, other=0.0)  # BUG out-of-bounds read: x
    tl.store(y + i, total, mask=i < n)


@deuteron.jit
def right(x, w, y, n, TAPS: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for tap in range(TAPS):
        total += tl.load(w + tap) * tl.load(x + i + tap, mask=i + tap < n, other=0.0)
    tl.store(y + i, total, mask=i < n)


def launch(kernel):
    x = np.random.default_rng(0).random(50, np.float32)
    kernel[(4,)](x, np.ones(3, np.float32), np.zeros(50, np.float32), 50, TAPS=3, B=16)
