"""attention: the logarithms of the sums are stored for rows that do not exist."""

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def faulty(q, k, v, out, lse, n, B: tl.constexpr, D: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    at = m[:, None] * D + d[None, :]
    query = tl.load(q + at, mask=m[:, None] < n, other=0.0)
    acc = tl.zeros((B, D), tl.float32)
    sums = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        kv = i[:, None] * D + d[None, :]
        key = tl.load(k + kv, mask=i[:, None] < n, other=0.0)
        p = tl.where(i[None, :] < n, tl.exp(tl.dot(query, tl.trans(key))), 0.0)
        value = tl.load(v + kv, mask=i[:, None] < n, other=0.0)
        acc = tl.dot(p, value, acc)
        sums += tl.sum(p, axis=1)
    tl.store(out + at, acc / sums[:, None], mask=m[:, None] < n)
    tl.store(lse + m, tl.log(sums))  # BUG out-of-bounds write: lse


@deuteron.jit
def right(q, k, v, out, lse, n, B: tl.constexpr, D: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    at = m[:, None] * D + d[None, :]
    query = tl.load(q + at, mask=m[:, None] < n, other=0.0)
    acc = tl.zeros((B, D), tl.float32)
    sums = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        kv = i[:, None] * D + d[None, :]
        key = tl.load(k + kv, mask=i[:, None] < n, other=0.0)
        p = tl.where(i[None, :] < n, tl.exp(tl.dot(query, tl.trans(key))), 0.0)
        value = tl.load(v + kv, mask=i[:, None] < n, other=0.0)
        acc = tl.dot(p, value, acc)
        sums += tl.sum(p, axis=1)
    tl.store(out + at, acc / sums[:, None], mask=m[:, None] < n)
    tl.store(lse + m, tl.log(sums), mask=m < n)


def launch(kernel):
    q, k, v = np.random.default_rng(0).random((3, 24, 16), np.float32)
    kernel[(2,)](q, k, v, np.zeros_like(q), np.zeros(24, np.float32), 24, B=16, D=16)
