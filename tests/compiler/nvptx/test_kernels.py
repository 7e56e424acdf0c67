"""Whole kernels on the simulator, against float64 NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("n", [16, 1024, 3008])
def test_vector_add(standard_kernels, simulated, rng, n) -> None:
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    out = np.zeros_like(x)
    simulated(standard_kernels["vector_add"].program(), (-(-n // 1024),), [x, y, out, n])
    assert np.array_equal(out, x + y)


@pytest.mark.parametrize(
    "warps, columns", [(1, 128), (4, 784), (4, 781), (8, 4096), (16, 1000), (4, 3)]
)
def test_softmax(softmax, simulated, rng, warps, columns) -> None:
    x = rng.standard_normal((5, columns)).astype(np.float32)
    out = np.zeros_like(x)
    simulated(softmax(columns, warps).program(), (2,), [out, x, columns, columns, 5, columns])
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, exact / exact.sum(axis=1, keepdims=True), rtol=2e-6)


def test_layer_norm(standard_kernels, simulated, rng) -> None:
    rows, columns = 3, 1040  # two blocks, the second one mostly masked off
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    weight, bias = (rng.standard_normal(columns).astype(np.float32) for _ in range(2))
    y, mean, rstd = np.zeros_like(x), np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    program = standard_kernels["layer_norm"].program()
    simulated(program, (rows,), [x, y, weight, bias, mean, rstd, columns, columns, 1e-5])
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
    exact = (wide - wide.mean(axis=1, keepdims=True)) * scale * weight + bias
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, wide.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(rstd, scale[:, 0], rtol=1e-5)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize(
    "shape, block, warps",
    [
        ((64, 64, 64), (64, 64, 32), 4),
        ((80, 48, 64), (64, 32, 32), 4),
        ((70, 50, 72), (32, 64, 64), 8),
        ((30, 20, 40), (16, 16, 16), 1),
        ((21, 37, 19), (16, 16, 16), 2),
    ],
)
def test_matmul(matmul, simulated, rng, dtype, shape, block, warps) -> None:
    m, n, k = shape
    a, b = (rng.standard_normal(s).astype(DTYPES[dtype]) for s in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float16)
    grid = (-(-m // block[0]) * -(-n // block[1]),)
    sample = matmul(dtype, shape, block, warps, "leaky_relu")
    # Strides of 1 are part of the variant, not arguments.
    numbers = [v for v in (m, n, k, k, n, n) if v != 1]
    simulated(sample.program(), grid, [a, b, c, *numbers])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    exact = np.where(exact >= 0, exact, 0.01 * exact)
    np.testing.assert_allclose(c, exact, atol=2e-3 * np.abs(exact).max())
