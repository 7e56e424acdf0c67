"""``tl.dot_scaled``: microscaled formats against their definition in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError

#: The numbers of e2m1 by their codes (OCP MX specification 1.0, 5.3.3).
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])
STORED = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "bf16": ml_dtypes.bfloat16}
M, N, K = 32, 16, 64


@triton.jit
def scaled(
    a,
    a_scale,
    b,
    b_scale,
    out,
    A: tl.constexpr,
    B: tl.constexpr,
    A_SHAPE: tl.constexpr,
    B_SHAPE: tl.constexpr,
    A_K: tl.constexpr,
    B_K: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    GROUPS: tl.constexpr,
    FAST: tl.constexpr = False,
):
    x = tl.load(a + tl.arange(0, A_SHAPE[0])[:, None] * A_SHAPE[1] + tl.arange(0, A_SHAPE[1])[None, :])
    y = tl.load(b + tl.arange(0, B_SHAPE[0])[:, None] * B_SHAPE[1] + tl.arange(0, B_SHAPE[1])[None, :])
    if a_scale is not None:
        a_scale = tl.load(a_scale + tl.arange(0, M)[:, None] * GROUPS + tl.arange(0, GROUPS)[None, :])
    if b_scale is not None:
        b_scale = tl.load(b_scale + tl.arange(0, N)[:, None] * GROUPS + tl.arange(0, GROUPS)[None, :])
    begin = tl.full((M, N), 1.0, tl.float32)
    z = tl.dot_scaled(x, a_scale, A, y, b_scale, B, begin, FAST, A_K, B_K)
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], z)


def operand(rng, form: str, rows: int, columns: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory of an operand, packed along ``axis`` if it is of e2m1, and its numbers."""
    if form == "e2m1":
        shape = (rows // 2, columns) if axis == 0 else (rows, columns // 2)
        memory = rng.integers(0, 256, shape, dtype=np.uint8)
        return memory, np.stack([E2M1[memory & 15], E2M1[memory >> 4]], axis + 1).reshape(rows, columns)
    if form == "fp16":
        numbers = rng.standard_normal((rows, columns)).astype(np.float16)
        return numbers, numbers.astype(np.float64)
    numbers = (4 * rng.standard_normal((rows, columns))).astype(STORED[form])
    memory = numbers.view(np.uint8) if form == "e5m2" else numbers  # as bytes, or as what it is
    return memory, numbers.astype(np.float64)


def spread(scale: np.ndarray) -> np.ndarray:
    return np.repeat(2.0 ** (scale.astype(np.float64) - 127), K // scale.shape[1], axis=1)


def options(a: np.ndarray, b: np.ndarray, groups: int, **more) -> dict:
    defaults = {"A_K": True, "B_K": True, "FAST": False}
    return {"A_SHAPE": a.shape, "B_SHAPE": b.shape, "M": M, "N": N, "GROUPS": groups, **defaults, **more}


@pytest.mark.parametrize(
    ("a_form", "b_form", "a_k", "b_k", "groups"),
    [
        ("e2m1", "e2m1", True, True, 2),
        ("e2m1", "e4m3", False, True, 2),
        ("e5m2", "e2m1", True, False, 2),
        ("e4m3", "bf16", True, True, 2),
        ("fp16", "e5m2", True, True, 2),
        ("e2m1", "e2m1", True, True, 4),
    ],
)
def test_products_of_scaled_operands(launch, rng, a_form, b_form, a_k, b_k, groups):
    a, a_numbers = operand(rng, a_form, M, K, 1 if a_k else 0)
    b, b_numbers = operand(rng, b_form, K, N, 0 if b_k else 1)
    plain = ("bf16", "fp16")
    a_scale = None if a_form in plain else rng.integers(124, 131, (M, groups), dtype=np.uint8)
    b_scale = None if b_form in plain else rng.integers(124, 131, (N, groups), dtype=np.uint8)
    left = a_numbers if a_scale is None else a_numbers * spread(a_scale)
    right = b_numbers if b_scale is None else b_numbers * spread(b_scale).T
    out = np.zeros((M, N), np.float32)
    held = launch(
        scaled, (1,), a, a_scale, b, b_scale, out, A=a_form, B=b_form, **options(a, b, groups, A_K=a_k, B_K=b_k)
    )
    # Operands and scales are exact in bf16 or f16; sums of 64 products are in f32.
    size = np.abs(left) @ np.abs(right) + 1
    assert (np.abs(held[4] - (1 + left @ right)) <= 64 * 2.0**-24 * size).all()


@pytest.mark.parametrize("fast", [False, True])
def test_the_largest_and_the_smallest_scales(launch, rng, fast):
    """255 is NaN, unless the kernel says that there is none; 0 is 2 ** -127, which only f32 sums can show."""
    a = np.full((M, K // 2), 0x22, np.uint8)  # 1.0
    b = np.full((K, N), 2.0**100, ml_dtypes.bfloat16)
    scale = np.full((M, 2), 127, np.uint8)
    scale[1], scale[2, 1] = 254 - 100, 255
    out = np.zeros((M, N), np.float32)
    held = launch(scaled, (1,), a, scale, b, None, out, A="e2m1", B="bf16", **options(a, b, 2, FAST=fast))
    with np.errstate(over="ignore"):
        expected = np.full(M, np.float32(64 * 2.0**100))
        expected[1] = np.inf
    assert np.array_equal(np.delete(held[4], 2, axis=0), np.repeat(np.delete(expected, 2)[:, None], N, 1))
    assert (np.isnan(held[4][2]) if not fast else np.isinf(held[4][2])).all()


def test_codes_of_scales_are_bytes_of_either_sign(launch, rng):
    """An int8 scale is the same bits, as in Triton: PyTorch views the codes of its e8m0 numbers as either."""
    a, a_numbers = operand(rng, "e2m1", M, K, 1)
    b, b_numbers = operand(rng, "e5m2", K, N, 0)
    a_scale, b_scale = (rng.integers(124, 131, (rows, 2), dtype=np.uint8) for rows in (M, N))
    left, right = a_numbers * spread(a_scale), b_numbers * spread(b_scale).T
    out = np.zeros((M, N), np.float32)
    signed = a_scale.view(np.int8), b_scale.view(np.int8)
    held = launch(scaled, (1,), a, signed[0], b, signed[1], out, A="e2m1", B="e5m2", **options(a, b, 2))
    assert (np.abs(held[4] - (1 + left @ right)) <= 64 * 2.0**-24 * (np.abs(left) @ np.abs(right) + 1)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": "e3m2"}, "lhs_format is 'e3m2'"),
        ({"B": "e4m3"}, "they differ in K"),
        ({"A": "bf16"}, "lhs of format bf16 is bfloat16 or uint16"),
        ({"A": "e5m2", "A_K": False}, "lhs_k_pack=False is for e2m1"),
        ({"GROUPS": 128}, "lhs_scale is tile<32x128xu8>"),
    ],
)
def test_operands_that_do_not_fit(change, message):
    a, b = np.zeros((M, K // 2), np.uint8), np.zeros((K // 2, N), np.uint8)
    scale = np.zeros((M, 128), np.uint8)
    out = np.zeros((M, N), np.float32)
    wrong = {"A": "e2m1", "B": "e2m1", **options(a, b, 2), **change}
    with pytest.raises(CompilationError, match=message):
        scaled[(1,)](a, scale, b, scale, out, **wrong)


@triton.jit
def of_two_factors(out):
    codes = tl.full((32, 32), 0, tl.uint8)
    few, many = tl.full((32, 1), 0, tl.uint8), tl.full((32, 2), 0, tl.uint8)
    tl.store(out, tl.sum(tl.dot_scaled(codes, many, "e5m2", codes, few, "e5m2")))


def test_scales_of_different_groups():
    with pytest.raises(CompilationError, match=r"the same scale factor; \(lhs: 16 vs rhs: 32\)") as caught:
        of_two_factors[(1,)](np.zeros(1, np.float32))
    assert str(caught.value.__cause__) == "Operands must have the same scale factor; (lhs: 16 vs rhs: 32)"
