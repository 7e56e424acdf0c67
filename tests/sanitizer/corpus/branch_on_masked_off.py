"""masks: a program without a row of its own asks whether it is wanted."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(wanted, y, n):
    pid = tl.program_id(0)
    if tl.load(wanted + pid, mask=pid < n) != 0:  # BUG use of masked-off values: wanted
        tl.store(y + pid, 1.0)


@deuteron.jit
def right(wanted, y, n):
    pid = tl.program_id(0)
    if tl.load(wanted + pid, mask=pid < n, other=0) != 0:
        tl.store(y + pid, 1.0)


def launch(kernel):
    kernel[(4,)](np.array([0, 1, 1], np.int32), np.zeros(4, np.float32), 3)
