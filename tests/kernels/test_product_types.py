"""What tl.dot makes of the types of its operands, and of the precisions that it is asked for."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import TypeMismatch


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


@triton.jit
def doubles(a_ptr, b_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    out = o_ptr + m[:, None] * N + n[None, :]
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + n[:, None] * K + k[None, :])
    first = tl.dot(a, tl.trans(b), tl.load(out), input_precision=PRECISION)
    tl.store(out, tl.dot(first, tl.dot(b, b.T), first, input_precision=PRECISION))


@pytest.mark.parametrize(
    ("sizes", "precision"),
    [
        ((16, 16, 16), "ieee"),
        ((32, 16, 64), "tf32"),
        ((8, 32, 4), "tf32x3"),
        ((64, 8, 8), "tf32"),
        ((16, 4, 16), "tf32x3"),
        ((2, 16, 16), "tf32"),
    ],
)
@pytest.mark.parametrize("warps", [1, 4])
def test_products_of_f64_are_those_of_f64_whatever_the_precision(launch, rng, sizes, precision, warps) -> None:
    m, n, k = sizes
    a, b, c = (rng.integers(-(1 << 15), 1 << 15, s).astype(np.float64) for s in ((m, k), (n, k), (m, n)))
    b = np.sign(b)
    numbers = dict(zip("MNK", sizes, strict=True))
    got = launch(doubles, (1,), a, b, c, **numbers, PRECISION=precision, num_warps=warps)[2]
    first = a @ b.T + c
    np.testing.assert_array_equal(got, first @ (b @ b.T) + first)


@triton.jit
def product(a_ptr, b_ptr, o_ptr, N: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(o_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), input_precision=PRECISION))


@pytest.mark.parametrize("turned", [False, True])
def test_eight_bits_of_two_formats(launch, rng, turned: bool) -> None:
    formats = [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn]
    a, b = (rng.integers(-2, 3, (32, 32)).astype(f) for f in (reversed(formats) if turned else formats))
    got = launch(product, (1,), a, b, np.zeros((32, 32), np.float32), N=32, PRECISION=None)[2]
    np.testing.assert_array_equal(got, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16x3", 2.0**-15), ("bf16x6", 2.0**-21)])
def test_several_products_of_bf16_are_as_precise_as_they_are(launch, normal, precision: str, tolerance: float) -> None:
    a, b = normal(32, 32), normal(32, 32)
    got = launch(product, (1,), a, b, np.zeros((32, 32), np.float32), N=32, PRECISION=precision)[2]
    size = np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(got - a.astype(np.float64) @ b) <= tolerance * size).all()


@triton.jit
def squared(a_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    a = tl.load(a_ptr + at)
    tl.store(o_ptr + at, tl.dot(a, a))


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_have_8_bits_in_products_as_in_triton(dtype) -> None:
    """Products of int64 wrapped at 2^31."""
    with pytest.raises(TypeMismatch, match="integers are of 8 bits in products"):
        squared[(1,)](np.ones((16, 16), dtype), np.zeros((16, 16), np.int32), N=16)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_products_of_bytes_are_those_of_int32(launch, dtype) -> None:
    a = np.full((32, 32), 127, dtype)
    got = launch(squared, (1,), a, np.zeros((32, 32), np.int32), N=32)[1]
    np.testing.assert_array_equal(got, 32 * 127**2)
