"""Rows whose places a loop looks for, spread over tiles when it has ended, on the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.tile.control import For

TEXT = """
def search(x, edges, out, n, M: tl.constexpr, N: tl.constexpr, INSIDE: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), tl.int32)
    low, high = tl.zeros((M,), tl.int32), tl.full((M,), n, tl.int32)
    for _ in range(32):
        middle = (low + high) // 2
        above = tl.load(edges + middle, mask=middle < n, other=1 << 30) <= i
        low, high = tl.where(above, middle + 1, low), tl.where(above, high, middle)
        if INSIDE:
            total += low[:, None]
    total += tl.load(x + i[:, None] * N + j[None, :]) * low[:, None]
    tl.store(out + i[:, None] * N + j[None, :], total)
"""


POINTERS = dict.fromkeys(("x", "edges", "out"), "*i32:16") | {"n": "i32"}


@pytest.mark.parametrize(("inside", "elements"), [(False, 1), (True, 4)])
def test_rows_that_a_loop_carries_are_spread_when_it_has_ended(from_text, inside, elements) -> None:
    """Threads that share a row do not all look for its place, unless each turn spreads it."""
    made = from_text(TEXT, POINTERS, {"M": 128, "N": 16, "INSIDE": inside}, 4).gpu("cuda:90a")
    loop = next(op for op in made.walk() if isinstance(op, For))
    rows = [result.type.layout for result in loop.results if result.type.rank == 1]
    assert [1 << sum(map(any, layout.register)) for layout in rows] == [elements] * 2


def _wanted(edges: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """The place of each row, and the sum of where the search was after each turn."""
    low, high = np.zeros(m, int), np.full(m, len(edges))
    sums = np.zeros(m, int)
    for _ in range(32):
        middle = (low + high) // 2
        above = np.append(edges, 1 << 30)[middle] <= np.arange(m)
        low, high = np.where(above, middle + 1, low), np.where(above, high, middle)
        sums += low
    np.testing.assert_array_equal(low, np.searchsorted(edges, np.arange(m), side="right"))
    return low, sums


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("shape", "warps"), [((128, 16), 4), ((64, 32), 1), ((32, 4), 4), ((256, 8), 8)])
def test_rows_are_where_a_search_by_halves_finds_them(from_text, run_function, rng, inside, shape, warps) -> None:
    made = from_text(TEXT, POINTERS, {"M": shape[0], "N": shape[1], "INSIDE": inside}, warps)
    x = rng.integers(-9, 10, shape).astype(np.int32)
    edges = np.sort(rng.integers(0, shape[0], 37)).astype(np.int32)
    out = np.full(shape, -77, np.int32)
    run_function(made.tile(), (1,), [x, edges, out, len(edges)], warps)
    low, sums = _wanted(edges, shape[0])
    np.testing.assert_array_equal(out, x * low[:, None] + (sums[:, None] if inside else 0))
