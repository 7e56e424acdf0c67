"""Tiles that are reduced, once or twice and along either axis, however their elements lie: made-up cases on the
simulator against NumPy."""

from __future__ import annotations

import random

import numpy as np
import pytest

REDUCED = """
def reduced(x, y, sums, best, again, rows, columns, scale, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr,
            SECOND: tl.constexpr, LIMIT: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    place = m[:, None] * rows + n[None, :] * columns
    t = tl.load(x + place, mask=(n < LIMIT)[None, :], other=0.0) * scale
    kept = tl.arange(0, N if AXIS == 0 else M)
    tl.store(sums + kept, tl.sum(t, AXIS))
    tl.store(best + kept, tl.argmax(t, AXIS))
    peak = tl.max(t, SECOND, keep_dims=True)
    tl.store(y + place, t - peak, mask=(n < LIMIT)[None, :])
    tl.store(again + tl.arange(0, N if SECOND == 0 else M), tl.sum(t - peak, SECOND))
"""

SHAPES = [(1, 64), (2, 128), (8, 8), (16, 64), (64, 16), (64, 64), (128, 4), (4, 256)]


def case(seed: int) -> tuple[tuple[int, int], int, dict[str, int], str]:
    """Shape, warps, constants, and how the elements lie: rows contiguous, columns, or neither."""
    draw = random.Random(seed)
    shape = draw.choice(SHAPES)
    constants = {"M": shape[0], "N": shape[1], "AXIS": draw.randrange(2), "SECOND": draw.randrange(2)}
    constants["LIMIT"] = draw.choice([shape[1], max(1, shape[1] - 3), max(1, shape[1] // 2)])
    return shape, draw.choice([1, 2, 4, 8]), constants, draw.choice(["rows", "columns", "apart"])


@pytest.mark.parametrize("seed", range(24))
def test_reductions_of_any_layout(from_text, simulated, seed: int) -> None:
    (m, n), warps, constants, lying = case(seed)
    strides = {"rows": (n + 16, 1), "columns": (1, m + 16), "apart": (2 * n, 2)}[lying]
    kinds = ["i32:1" if stride == 1 else "i32:16" if stride % 16 == 0 else "i32" for stride in strides]
    signature = {**dict.fromkeys(("x", "y", "sums"), "*fp32:16"), "best": "*i32:16", "again": "*fp32:16"}
    signature |= {"rows": kinds[0], "columns": kinds[1], "scale": "fp32"}
    made = from_text(REDUCED, signature, constants, warps)
    rng = np.random.default_rng(seed)
    memory = rng.permutation(m * strides[0] + n * strides[1]).astype(np.float32) - 64  # no two are equal
    y = np.full_like(memory, 7)
    axis, second, limit = constants["AXIS"], constants["SECOND"], constants["LIMIT"]
    kept, kept_again = ((n if a == 0 else m) for a in (axis, second))
    sums, best, again = np.zeros(kept, np.float32), np.full(kept, -1, np.int32), np.zeros(kept_again, np.float32)
    arguments = [memory, y, sums, best, again, *(s for s in strides if s != 1), 0.5]
    simulated(made, (1,), arguments)

    place = np.arange(m)[:, None] * strides[0] + np.arange(n)[None, :] * strides[1]
    tile = np.where(np.arange(n) < limit, memory[place].astype(np.float64) * 0.5, 0.0)
    np.testing.assert_array_equal(sums, tile.sum(axis))
    np.testing.assert_array_equal(
        np.take_along_axis(tile, np.expand_dims(best, axis), axis), tile.max(axis, keepdims=True)
    )
    shifted = tile - tile.max(second, keepdims=True)
    np.testing.assert_array_equal(again, shifted.sum(second))
    expected = np.full_like(memory, 7)
    expected[place[:, :limit]] = shifted[:, :limit]
    np.testing.assert_array_equal(y, expected)
