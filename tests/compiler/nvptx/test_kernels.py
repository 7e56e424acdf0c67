"""Whole kernels on the simulator, against float64 NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.ir import print_function

DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("n", [16, 1024, 3008])
def test_vector_add(standard_kernels, simulated, rng, n) -> None:
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    out = np.zeros_like(x)
    simulated(standard_kernels["vector_add"], (-(-n // 1024),), [x, y, out, n])
    assert np.array_equal(out, x + y)


@pytest.mark.parametrize("warps, columns", [(1, 128), (4, 784), (4, 781), (8, 4096), (16, 1000), (4, 3)])
def test_softmax(softmax, simulated, rng, warps, columns) -> None:
    x = rng.standard_normal((5, columns)).astype(np.float32)
    out = np.zeros_like(x)
    simulated(softmax(columns, warps), (2,), [out, x, columns, columns, 5, columns])
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
    simulated(sample, grid, [a, b, c, *numbers])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    exact = np.where(exact >= 0, exact, 0.01 * exact)
    np.testing.assert_allclose(c, exact, atol=2e-3 * np.abs(exact).max())


ATTENTION = """
def attention(q_ptr, k_ptr, v_ptr, o_ptr, T, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rows, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < T, other=0.0)
    best = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for start in range(0, T, N):
        columns = start + tl.arange(0, N)
        inside = columns[:, None] < T
        k = tl.load(k_ptr + columns[:, None] * D + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(columns[None, :] < T, scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        p = tl.exp(scores - higher[:, None])
        shrink = tl.exp(best - higher)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + columns[:, None] * D + d[None, :], mask=inside, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        best = higher
    out = (acc / total[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + rows[:, None] * D + d[None, :], out, mask=rows[:, None] < T)
"""


@pytest.mark.parametrize("length, warps", [(64, 4), (50, 2)])
def test_attention(from_text, simulated, rng, length, warps) -> None:
    """Two dots, transposed operands, row statistics carried by the loop: what the layouts have to hold together."""
    depth, scale = 32, 0.17
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), "*fp16:16")
    sample = from_text(
        ATTENTION,
        {**pointers, "T": "i32:16" if length % 16 == 0 else "i32", "scale": "fp32"},
        {"M": 32, "N": 16, "D": depth},
        warps,
    )
    q, k, v = (rng.standard_normal((length, depth)).astype(np.float16) for _ in range(3))
    out = np.zeros_like(q)
    simulated(sample, (-(-length // 32),), [q, k, v, out, length, scale])
    scores = scale * q.astype(np.float64) @ k.astype(np.float64).T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    exact = weights @ v.astype(np.float64) / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(out, exact, atol=4e-3)


def test_random_numbers_do_not_depend_on_the_layout(from_text, simulated) -> None:
    """tl.rand is a long integer expression, which is kept instead of being computed again."""
    from deuteron.compiler.targets import interpreter

    text = """
def dropout(x_ptr, y_ptr, seed, N: tl.constexpr):
    offs = tl.arange(0, N)
    keep = tl.rand(seed, offs) > 0.25
    tl.store(y_ptr + offs, tl.where(keep, tl.load(x_ptr + offs) / 0.75, 0.0))
"""
    sample = from_text(text, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "seed": "i32"}, {"N": 512})
    x, y, wanted = np.ones(512, np.float32), np.zeros(512, np.float32), np.zeros(512, np.float32)
    simulated(sample, (1,), [x, y, 123])
    interpreter.run(sample.tile(), (1,), [x, wanted, 123])
    np.testing.assert_allclose(y, wanted, rtol=1e-6)
    assert 0.6 < np.count_nonzero(y) / 512 < 0.9


SUMS_BESIDE_PRODUCTS = """
def sums(a, b, c, s, K, N: tl.constexpr, BK: tl.constexpr):
    i, j, k = tl.arange(0, 16), tl.arange(0, N), tl.arange(0, BK)
    acc, total = tl.zeros([16, N], tl.float32), tl.zeros([N], tl.float32)
    before = tl.zeros([BK, N], tl.float16)
    for first in range(0, K, BK):
        tile = tl.load(b + (first + k)[:, None] * N + j[None, :])
        acc = tl.dot(tl.load(a + i[:, None] * K + (first + k)[None, :]), tile, acc)
        if first % (2 * BK) == 0:
            total += tl.sum(tile.to(tl.float32), 0) - tl.sum(before.to(tl.float32), 0)
        before = tile
    tl.store(c + i[:, None] * N + j[None, :], acc)
    tl.store(s + j, total)
"""


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
@pytest.mark.parametrize("depth", [32, 160])
def test_tiles_of_a_ring_are_read_in_branches_and_carried_too(from_text, simulated, rng, target, depth) -> None:
    n, step = 32, 32
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((16, depth), (depth, n)))
    c, s = np.zeros((16, n), np.float32), np.zeros(n, np.float32)
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "s": "*fp32:16", "K": "i32:16"}
    sample = from_text(SUMS_BESIDE_PRODUCTS, signature, {"N": n, "BK": step}, 2)
    assert "gpu.slot" in print_function(sample.gpu(target))
    simulated(sample.program(target), (1,), [a, b, c, s, depth])
    sums = b.astype(np.float64).reshape(-1, step, n).sum(1)
    exact = sums[::2].sum(0) - sums[1:-1:2].sum(0)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-3)
    np.testing.assert_allclose(s, exact, atol=1e-3)
