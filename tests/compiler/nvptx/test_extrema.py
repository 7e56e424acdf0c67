"""Extrema and where they are, on the simulator against NumPy: NaNs, zeros of both signs, equal elements, by either rule
for these, however the elements lie in registers."""

from __future__ import annotations

import random
import re

import ml_dtypes
import numpy as np
import pytest

EXTREMA = """
def extrema(x, places, values, rows, columns, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, LEFT: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    KEPT: tl.constexpr = N if AXIS == 0 else M
    kept = tl.arange(0, KEPT)
    t = tl.load(x + m[:, None] * rows + n[None, :] * columns)
    tl.store(places + kept, tl.argmax(t, AXIS, tie_break_left=LEFT))
    tl.store(places + KEPT + kept, tl.argmin(t, AXIS, tie_break_left=LEFT))
    most, at_most = tl.max(t, AXIS, return_indices=True, return_indices_tie_break_left=LEFT)
    least, at_least = tl.min(t, AXIS, return_indices=True, return_indices_tie_break_left=LEFT)
    tl.store(places + 2 * KEPT + kept, at_most)
    tl.store(places + 3 * KEPT + kept, at_least)
    tl.store(values + kept, most)
    tl.store(values + KEPT + kept, least)
    index = tl.broadcast_to(n[None, :] if AXIS == 1 else m[:, None], M, N)
    unordered = t != t
    found, last = tl.reduce((tl.where(unordered, 0, t), index), AXIS, the_last)
    tl.store(places + 4 * KEPT + kept, last)
    again, far = tl.reduce((tl.where(unordered, 0, t), N + M - index), AXIS, the_last)
    tl.store(places + 5 * KEPT + kept, far)


@triton.jit
def the_last(a, i, b, j):
    keep = (a > b) | ((a == b) & (j <= i))
    return tl.where(keep, a, b), tl.where(keep, i, j)
"""
SHAPES = [(1, 64), (2, 128), (8, 8), (16, 64), (64, 16), (128, 4), (256, 2), (1, 1024)]
DTYPES = {"fp32": np.float32, "fp64": np.float64, "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32}
NUMBERS = [np.nan, np.nan, -0.0, 0.0, np.inf, -np.inf, 1.0, -1.0, 2.0]


def drawn(draw: random.Random, kind: str, size: int) -> np.ndarray:
    """Few different numbers, so that many are equal."""
    some = [draw.choice([-3, 0, 5, 7] if kind == "i32" else NUMBERS) for _ in range(draw.randint(1, 5))]
    return np.array([draw.choice(some) for _ in range(size)], np.float64).astype(DTYPES[kind])


def first(tile: np.ndarray, axis: int, largest: bool) -> np.ndarray:
    """Where the extreme number is, the first of equal ones; 0 where there is none but NaN."""
    wide = tile.astype(np.float64) if largest else -tile.astype(np.float64)
    order = np.where(np.isnan(wide), -np.inf, wide)
    best = order == order.max(axis, keepdims=True)
    numbers = best & ~np.isnan(wide)
    return np.where(numbers.any(axis), numbers.argmax(axis), best.argmax(axis))


@pytest.mark.parametrize("seed", range(30))
def test_extrema_of_any_layout(from_text, simulated, seed: int) -> None:
    draw = random.Random(seed)
    (m, n), axis, kind = draw.choice(SHAPES), draw.randrange(2), draw.choice(list(DTYPES))
    rows, columns = draw.choice([(n + 16, 1), (1, m + 16), (2 * n, 2)])
    promoted = "fp32" if kind == "bf16" else kind
    kinds = {name: "i32:1" if s == 1 else "i32" for name, s in (("rows", rows), ("columns", columns))}
    signature = {"x": f"*{kind}:16", "places": "*i32:16", "values": f"*{promoted}:16", **kinds}
    constants = {"M": m, "N": n, "AXIS": axis, "LEFT": draw.random() < 0.5}
    made = from_text(EXTREMA, signature, constants, draw.choice([1, 2, 4]))
    memory = drawn(draw, kind, m * rows + n * columns)
    kept = n if axis == 0 else m
    places, values = np.full((6, kept), -1, np.int32), np.zeros((2, kept), DTYPES[promoted])
    simulated(made, (1,), [memory, places, values, *(s for s in (rows, columns) if s != 1)])

    tile = memory[np.arange(m)[:, None] * rows + np.arange(n)[None, :] * columns]
    most, least = (first(tile, axis, largest) for largest in (True, False))
    np.testing.assert_array_equal(places[:4], [most, least, most, least])
    for found, at in zip(values, (most, least), strict=True):
        wanted = np.take_along_axis(tile, np.expand_dims(at, axis), axis).reshape(kept).astype(np.float64)
        np.testing.assert_array_equal(found.astype(np.float64), wanted)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found.astype(np.float64))[numbers], np.signbit(wanted)[numbers])
    wide = tile.astype(np.float64)
    flipped = np.flip(np.where(np.isnan(wide), 0, wide), axis)
    last = tile.shape[axis] - 1 - flipped.argmax(axis)
    np.testing.assert_array_equal(places[4], last)
    np.testing.assert_array_equal(places[5], m + n - np.flip(flipped, axis).argmax(axis))


PLACE = """
def place(x, y, N: tl.constexpr):
    tl.store(y, tl.argmax(tl.load(x + tl.arange(0, N)), 0))
"""


@pytest.mark.parametrize(("kind", "inside", "outside"), [("fp32", 2, 4), ("i32", 1, 2)])
def test_positions_are_not_compared_inside_a_thread(from_text, check_ptx, kind: str, inside: int, outside: int) -> None:
    """Of a thread's 32 elements one is left by 31 comparisons of values, and NaN; positions are compared in the five
    exchanges between lanes."""
    ptx = check_ptx(from_text(PLACE, {"x": f"*{kind}:16", "y": "*i32:16"}, {"N": 1024}, 1))
    values = re.findall(r"setp\.\w+\.(?:f32|s32)", ptx)
    assert len(values) <= 31 * inside + 5 * (outside + 1) + 2
