"""Products of weights of four bits: two in a byte along K, whose rows are as short as sixteen bytes."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl


@triton.jit
def packed(a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    k, half = tl.arange(0, BK), tl.arange(0, BK // 2)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a_ptr + m[:, None] * K + (s + k)[None, :])
        p = tl.load(b_ptr + n[:, None] * (K // 2) + (s // 2 + half)[None, :])
        low, high = ((p << 4).to(tl.int8) >> 4).to(tl.float16), (p >> 4).to(tl.float16)
        acc = tl.dot(x, tl.trans(tl.join(low, high).reshape(BN, BK)), acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (16, 32)])
@pytest.mark.parametrize("depth", [32, 64])
@pytest.mark.parametrize("turns", [1, 3, 4])
def test_products_of_four_bits(launch, rng, rows: int, columns: int, depth: int, turns: int) -> None:
    n, k = 2 * columns, turns * depth
    a = rng.integers(-4, 5, (rows, k)).astype(np.float16)
    b = rng.integers(-8, 8, (n, k))
    nibbles = (b & 15).astype(np.uint8)
    words = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).view(np.int8)
    c = np.full((rows, n), np.nan, np.float32)
    *_, c = launch(packed, (2,), a, words, c, n, k, BM=rows, BN=columns, BK=depth)[:3]
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.T)
