"""softmax: a label of -100 means that the row does not count, but its logit is read."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(logits, labels, loss, n):
    row = tl.program_id(0)
    label = tl.load(labels + row)
    value = tl.load(logits + row * n + label)  # BUG out-of-bounds read: logits
    tl.store(loss + row, tl.where(label < 0, 0.0, -value))


@deuteron.jit
def right(logits, labels, loss, n):
    row = tl.program_id(0)
    label = tl.load(labels + row)
    value = tl.load(logits + row * n + label, mask=label >= 0, other=0.0)
    tl.store(loss + row, tl.where(label < 0, 0.0, -value))


def launch(kernel):
    logits = np.random.default_rng(0).random((4, 10), np.float32)
    labels = np.array([-100, 3, 9, -100], np.int32)
    kernel[(4,)](logits, labels, np.zeros(4, np.float32), 10)
