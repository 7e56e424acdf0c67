"""What tl.dot makes of the types of its operands, and of the precisions that it is asked for."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl


@triton.jit
def in_halves(a_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    a = tl.load(a_ptr + at)
    tl.store(o_ptr + at, tl.dot(a, a, out_dtype=tl.float16))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_halves_hold_products_of_halves_alone(launch, dtype) -> None:
    a = np.full((32, 32), 64).astype(dtype)
    got = launch(in_halves, (1,), a, np.zeros((32, 32), np.float32), N=32)[1]
    np.testing.assert_array_equal(got, np.inf if dtype is np.float16 else 32 * 64.0**2)
