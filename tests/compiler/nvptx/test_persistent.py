"""Programs that work on many tiles each: every tile of a grid with three axes is worked on once, as the one it is."""

from __future__ import annotations

import numpy as np
import pytest

COUNT = """
def count(c):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    here = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    k = tl.arange(0, 4)
    tl.store(c + here * 4 + k, tl.load(c + here * 4 + k) + 1 + x * 100 + y * 10 + z)
"""


@pytest.mark.parametrize("grid", [(2, 3, 4), (4, 1, 3), (3, 4, 1), (1, 5, 2), (7, 1, 1)])
def test_every_tile_is_worked_on_once(from_text, simulated, grid: tuple[int, int, int]) -> None:
    made = from_text(COUNT, {"c": "*i32:16"}, persistent=True)
    assert made.gpu().recipe.persistent
    found = np.zeros((*reversed(grid), 4), np.int32)
    simulated(made, grid, [found])
    z, y, x, _ = np.indices(found.shape)
    np.testing.assert_array_equal(found, 1 + x * 100 + y * 10 + z)


TRIANGLE = """
def triangle(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    place = (head * tl.num_programs(0) + row) * BM
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, (row + 1) * BK, BK):
        rk = start + tl.arange(0, BK)
        x = tl.load(a + (place + rm)[:, None] * K + rk[None, :])
        acc = tl.dot(x, tl.load(b + rk[:, None] * N + rn[None, :]), acc)
    out = c + (place + rm)[:, None] * N + rn[None, :]
    tl.store(out, acc + tl.load(out))
"""


@pytest.mark.parametrize(
    "grid", [(1, 1, 1), (2, 1, 1), (7, 1, 1), (8, 1, 1), (4, 3, 2), (3, 3, 1), (5, 1, 3), (1, 9, 1)]
)
def test_programs_that_take_longer_are_paired_with_shorter_ones(from_text, simulated, rng, grid) -> None:
    """Each is worked on once, also that in the middle of an odd number."""
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "N": "i32:16", "K": "i32:16"}
    made = from_text(TRIANGLE, signature, {"BM": 64, "BN": 16, "BK": 16}, 4, persistent=True)
    assert made.gpu().recipe.persistent
    rows, heads = grid[0], grid[1] * grid[2]
    m, n, k = rows * heads * 64, 16, rows * 16
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.ones((m, n), np.float32)
    expected = np.concatenate(
        [
            1 + a[place : place + 64, : (row + 1) * 16].astype(np.float64) @ b[: (row + 1) * 16].astype(np.float64)
            for place, row in zip(range(0, m, 64), list(range(rows)) * heads, strict=True)
        ]
    )
    simulated(made, grid, [a, b, c, n, k])
    np.testing.assert_array_equal(c, expected)


SPLIT = """
def split(a, b, c, tickets, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    part = tl.program_id(1)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(part * BK, K, SPLIT * BK):
        rk = start + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * K + rk[None, :])
        acc = tl.dot(x, tl.load(b + rk[:, None] * N + rn[None, :]), acc)
    tl.atomic_add(c + rm[:, None] * N + rn[None, :], acc, sem="SEM")
    if tl.atomic_add(tickets + tl.program_id(0), 1) == SPLIT - 1:
        tl.store(tickets + tl.num_programs(0) + tl.program_id(0), part)
"""


@pytest.mark.parametrize("sem", ["acq_rel", "relaxed"])
@pytest.mark.parametrize(("warps", "persistent"), [(4, True), (8, True), (8, None)])
def test_programs_that_add_and_wait_for_nobody_stay(
    from_text, simulated, rng, sem: str, warps: int, persistent: bool | None
) -> None:
    """Where they are asked to; by default two of several warp groups share an SM instead."""
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "tickets": "*i32:16", "N": "i32:16", "K": "i32:16"}
    constexprs = {"BM": 128, "BN": 16, "BK": 16, "SPLIT": 3}
    made = from_text(SPLIT.replace("SEM", sem), signature, constexprs, warps, persistent=persistent)
    assert made.gpu().recipe.persistent == (persistent is True)
    m, n, k = 256, 16, 112  # seven blocks of the inner dimension for three programs
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c, tickets = np.zeros((m, n), np.float32), np.zeros(4, np.int32)
    simulated(made, (2, 3), [a, b, c, tickets, n, k])
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    assert list(tickets[:2]) == [3, 3] and set(tickets[2:]) <= {0, 1, 2}
