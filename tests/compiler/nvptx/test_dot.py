"""Matrix products by themselves, on the simulator against NumPy: every type and precision, and by which instruction."""

from __future__ import annotations

import numpy as np
import pytest
from single_operations import DTYPES, as_tf32, one_product


@pytest.mark.parametrize(
    "dtype, precision, instruction, tolerance",
    [
        ("fp16", "tf32", "m16n8k16", 1e-6), ("bf16", "tf32", "m16n8k16", 1e-6),
        ("fp32", "tf32", "m16n8k8", 1e-6), ("fp32", "tf32x3", "m16n8k8", 2e-6), ("fp32", "ieee", "fma", 1e-6),
        ("fp64", "ieee", "m16n8k16", 1e-15), ("i8", "tf32", "m16n8k32", 0), ("fp8e5", "tf32", "m16n8k32", 1e-6),
        ("fp8e4nv", "tf32", "m16n8k32", 1e-6),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(32, 32, 32), (64, 16, 64)])
def test_dot(from_text, simulated, check_ptx, rng, dtype, precision, instruction, tolerance, shape) -> None:
    m, n, k = shape
    sample, a, b, c = one_product(from_text, rng, dtype, precision, shape)
    simulated(sample, (1,), [a, b, c])
    if (dtype, precision) == ("fp32", "tf32"):
        a, b = as_tf32(a), as_tf32(b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, exact, atol=tolerance * k * np.abs(exact).max() / 8)
    ptx = check_ptx(sample)
    # A group of four warps takes tiles of 64 rows; f64, and what recovers f32 from tf32, is done by single warps.
    groups = m >= 64 and instruction != "fma" and precision != "tf32x3" and dtype != "fp64"
    assert ("wgmma.mma_async" in ptx) == groups
    assert ("mma.sync" in ptx) == (instruction != "fma" and not groups)
    assert (instruction.replace("m16n8", f"m64n{n}") if groups else instruction) in ptx


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "i8", "fp8e5"])
@pytest.mark.parametrize(
    "shape", [(1, 32, 32), (2, 2, 64), (4, 64, 32), (8, 8, 64), (16, 4, 32), (64, 2, 64), (128, 4, 128)]
)
def test_few_rows_and_few_columns(from_text, simulated, check_ptx, rng, dtype, shape) -> None:
    """Lanes without a row or column of their own hold copies; from the eighth row on there may be none."""
    sample, a, b, c = one_product(from_text, rng, dtype, "ieee", shape)
    simulated(sample, (1,), [a, b, c])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5 * shape[2])
    assert "mma.sync" in check_ptx(sample)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("fp16", (4, 32, 8)), ("fp16", (64, 1, 64)), ("fp32", (8, 32, 32)), ("fp32", (32, 4, 32))]
)
def test_a_dot_too_small_for_tensor_cores_is_multiplied_and_added(
    from_text, simulated, check_ptx, rng, dtype, shape
) -> None:
    sample, a, b, c = one_product(from_text, rng, dtype, "tf32", shape)
    simulated(sample, (1,), [a, b, c])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5 * shape[2])
    assert "mma" not in check_ptx(sample)


WIDENED = """
def widened(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    acc = tl.zeros((M, N), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :]).to(tl.float32)
        y = tl.load(b + n[:, None] * K + (s + k)[None, :]).to(tl.float32)
        acc += tl.dot(x, tl.trans(y))
    tl.store(c + m[:, None] * N + n[None, :], acc)
"""


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("shape", [(16, 8, 16), (64, 32, 32), (4, 16, 64)])
def test_halves_that_are_widened_are_multiplied_as_halves(from_text, simulated, check_ptx, rng, dtype, shape) -> None:
    """Products of halves are exact in float32: half of the bytes, and nothing to cast."""
    m, n, step = shape
    types = {"a": f"*{dtype}:16", "b": f"*{dtype}:16", "c": "*fp32:16", "K": "i32:16"}
    sample = from_text(WIDENED, types, {"M": m, "N": n, "BK": step})
    a, b = (rng.standard_normal((rows, 3 * step)).astype(DTYPES[dtype]) for rows in (m, n))
    c = np.zeros((m, n), np.float32)
    simulated(sample, (1,), [a, b, c, 3 * step])
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(c, exact, atol=1e-5 * np.abs(exact).max())
    kind = {"fp16": "f16", "bf16": "bf16"}[dtype]
    assert f".f32.{kind}.{kind}" in check_ptx(sample)
