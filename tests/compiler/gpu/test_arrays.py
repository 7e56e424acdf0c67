"""Which array a pointer points into (gpu/arrays.py)."""

from __future__ import annotations

import pytest

from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.gpu.arrays import Arrays
from deuteron.compiler.tile.memory import Store
from deuteron.compiler.tile.passes import optimize

WALK = """
import deuteron as triton
import deuteron.language as tl

@triton.jit
def walk(x, y, count):
    here, there = x + tl.arange(0, 16), y + tl.arange(0, 16)
    for i in range(0, count):
        {}
        tl.store(here, i)
    j = 0
    while j < count:
        here, j = here + 1, j + 1
    tl.store(here, 1.0)
"""


@pytest.mark.parametrize(
    ("step", "known"),
    [
        ("here += i", True),
        ("if i > 3: here += 16", True),
        ("here = tl.where(i > 3, here, here + 1)", True),
        ("if i > 3: here = y + tl.arange(0, 16)", False),
        ("here, there = there, here", False),
        ("for j in range(0, i): here, there = there, here", False),
    ],
)
def test_what_loops_and_branches_hand_on(step: str, known: bool) -> None:
    source = KernelSource.from_text(WALK.format(step), "walk")
    function = optimize(lower(source, {"x": "*fp32:16", "y": "*fp32:16", "count": "i32"}, {}))
    arrays = Arrays(function)
    stored = [arrays.accessed(op) for op in function.walk() if isinstance(op, Store)]
    assert stored == [function.parameters[0].value if known else None] * 2
