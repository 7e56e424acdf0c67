"""What authors promise in statements of their own (tile/passes/promises.py)."""

from __future__ import annotations

import pytest

from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.ir import verify
from deuteron.compiler.tile.axis import analyze
from deuteron.compiler.tile.memory import Load
from deuteron.compiler.tile.passes import optimize

ROWS = """
import deuteron as triton
import deuteron.language as tl

@triton.jit
def rows(x, table, y):
    m = tl.arange(0, 64)
    row = tl.load(table + m)
    {}
    tl.store(y + m, tl.load(x + row))
"""


@pytest.mark.parametrize(
    "hints",
    [
        "tl.multiple_of(row, 16); tl.max_contiguous(row, 16)",
        "tl.max_contiguous(row, 16); tl.multiple_of(row, 16)",
        "tl.multiple_of(row, 8); tl.max_contiguous(row, 16); tl.multiple_of(row, 16)",
        "row = tl.max_contiguous(tl.multiple_of(row, 16), 16)",
    ],
)
def test_all_that_is_promised_of_a_value_holds(hints: str) -> None:
    source = KernelSource.from_text(ROWS.format(hints), "rows")
    signature = {"x": "*fp32:16", "table": "*i32:16", "y": "*fp32:16"}
    function = verify(optimize(lower(source, signature, {})))
    facts = analyze(function)
    rows = [op.pointer for op in function.walk() if isinstance(op, Load)][-1]
    assert facts[rows].aligned(0) == 4  # the array itself is aligned to 16 bytes
    assert facts[rows].contiguity == (16,)
