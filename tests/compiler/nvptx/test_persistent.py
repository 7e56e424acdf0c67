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
