"""Kernels whose results may lie on idle rings: read as text by the tests of places and by those on the simulator."""

import deuteron.language as tl


def two_products(a, b, c, d, e, K, s, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """Products one after the other, then a sum over threads. Rings are one where ``FIRST`` is ``SECOND``."""
    r = tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, FIRST):
        k = start + tl.arange(0, FIRST)
        acc = tl.dot(tl.load(a + r[:, None] * s + k[None, :]), tl.load(b + k[:, None] * s + r[None, :]), acc)
    tl.store(c + r[:, None] * s + r[None, :], acc.to(tl.float16))
    more = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, SECOND):
        k = start + tl.arange(0, SECOND)
        more = tl.dot(tl.load(a + r[:, None] * s + k[None, :]), tl.load(b + k[:, None] * s + r[None, :]), more)
    tl.store(d + r[:, None] * s + r[None, :], more.to(tl.float16))
    tl.store(e + r, tl.sum(acc + more, 0))


def in_a_loop(a, b, c, d, K, s, n):
    r = tl.arange(0, 64)
    for turn in range(n):
        acc = tl.zeros((64, 64), tl.float32)
        for start in range(0, K, 32):
            k = start + tl.arange(0, 32)
            acc = tl.dot(tl.load(a + r[:, None] * s + k[None, :]), tl.load(b + k[:, None] * s + r[None, :]), acc)
        tl.store(c + (turn * 64 + r[:, None]) * s + r[None, :], acc.to(tl.float16))
        tl.store(d + turn * 64 + r, tl.sum(acc, 0))
