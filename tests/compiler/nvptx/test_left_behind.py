"""Boxes of arrays of which nothing is left: an extent behind a moved base may be negative."""

from __future__ import annotations

import numpy as np
import pytest

#: Blocks of the inner dimension, each the beginning of what is left of the arrays; the last ones lie behind them.
LEFT = """
def left_behind(a, b, c, K, BLOCKS: tl.constexpr):
    m, k = tl.arange(0, 16), tl.arange(0, 16)
    total = tl.zeros((16, 64), tl.float32)
    for block in range(BLOCKS):
        left = K - block * 16
        rows = tl.make_block_ptr(a + block * 16 * 16, (left, 16), (16, 1), (0, 0), (16, 16), (1, 0))
        columns = tl.make_block_ptr(b + block * 16 * {row}, (left, {row}), ({row}, 1), (0, 0), (16, 64), (1, 0))
        x = tl.load(rows, boundary_check=(0,), padding_option="zero")
        y = tl.load(columns, boundary_check=(0, 1), padding_option="zero")
        total += tl.dot(tl.trans(x), y)
    tl.store(c + m[:, None] * 64 + tl.arange(0, 64)[None, :], total)
"""


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize("row", [64, 60])
@pytest.mark.parametrize("inside", [0, 1, 17, 33])
def test_nothing_is_read_behind_the_end(from_text, run_function, target: str, kind: str, row: int, inside: int) -> None:
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "K": kind}
    made = from_text(LEFT.format(row=row), signature, {"BLOCKS": 4})
    rng = np.random.default_rng(inside)
    a, b = rng.integers(-4, 5, (64, 16)).astype(np.float16), rng.integers(-4, 5, (64, row)).astype(np.float16)
    a[inside:] = b[inside:] = np.nan
    c = np.full((16, 64), 7, np.float32)
    run_function(made.tile(), (1,), [a, b, c, inside], 4, target)
    expected = a[:inside].astype(np.float64).T @ b[:inside].astype(np.float64)
    np.testing.assert_array_equal(c[:, :row], expected)
    np.testing.assert_array_equal(c[:, row:], 0)
