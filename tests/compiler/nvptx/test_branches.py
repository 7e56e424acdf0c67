"""Short branches of loops that become straight code, on the simulator against NumPy: nothing that a branch guards is
read where it is not taken, and its results are those of the side that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deuteron.compiler.tile.control import For, If

#: Parts of a sequence, of which some are empty, are combined; ``other`` is done instead of an empty one.
PARTS = """
def parts(x, weight, begins, out, count, N: tl.constexpr, TRIPS: tl.constexpr):
    n = tl.arange(0, N)
    total, best = tl.zeros((N,), tl.float32), -float("inf")
    for part in range({trips}):
        begin = tl.load(begins + part)
        if begin >= 0:
            row = tl.load(x + begin * N + n, mask=n < N - 1, other=3.0)
            w = tl.load(weight + part)
            new = tl.maximum(best, w)
            total = total * tl.exp2(best - new) + row * tl.exp2(w - new)
            best = new
        {other}
    tl.store(out + n, total)
"""
OTHERS = {
    "nothing": "",
    "a number": "else:\n            total += 1",
    "another row": "else:\n            total += tl.load(x + n)",
}
TYPES = {"x": "*fp32:16", "weight": "*fp32:16", "begins": "*i32:16", "out": "*fp32:16", "count": "i32"}


def expected(x: Any, weight: Any, begins: Any, other: str) -> Any:
    total, best = np.zeros(x.shape[1]), -np.inf
    for w, begin in zip(weight.astype(np.float64), begins, strict=True):
        if begin >= 0:
            row, new = x[begin].astype(np.float64), max(best, w)
            row[-1] = 3
            total, best = total * np.exp2(best - new) + row * np.exp2(w - new), new
        elif other != "nothing":
            total = total + (1 if other == "a number" else x[0])
    return total


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize(
    ("trips", "count"), [("TRIPS", 8), ("TRIPS", 3), ("count", 0), ("count", 1), ("count", 7), ("count", 13)]
)
@pytest.mark.parametrize("warps", [1, 4])
def test_parts_that_may_be_empty(
    from_text: Callable[..., Any],
    simulated: Callable[..., Any],
    rng: Any,
    other: str,
    trips: str,
    count: int,
    warps: int,
) -> None:
    size = 32 * warps
    text = PARTS.format(trips=trips, other=OTHERS[other])
    sample = from_text(text, TYPES, {"N": size, "TRIPS": count}, warps)
    made = sample.gpu()
    assert not [branch for loop in made.ops_of(For) for branch in loop.body.walk() if isinstance(branch, If)]
    x = rng.standard_normal((max(1, count), size)).astype(np.float32)
    weight = rng.standard_normal(max(1, count)).astype(np.float32)
    begins = rng.integers(-2, count, max(1, count)).astype(np.int32) if count else np.zeros(1, np.int32)
    begins[begins < 0] = -(1 << 20)  # far outside
    out = np.full(size, 77, np.float32)
    simulated(sample, (1,), [x, weight, begins, out, count])
    exact = expected(x, weight[:count], begins[:count], other)
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-5 * max(1, np.abs(exact).max()))


#: What the second branch of a step reads is what the first one made, or left.
TWO = """
def two(x, flags, out, sums, end, N: tl.constexpr):
    n = tl.arange(0, N)
    total, count = tl.zeros((N,), tl.float32), 0
    for t in range(1, end, 2):
        flag = tl.load(flags + t)
        if flag > 0:
            row = tl.load(x + t * N + n)
            total += row
            count += 1
        else:
            row = total * 0.5
        if flag != 2:
            total = tl.maximum(total, row) + tl.load(x + n, mask=n < N - 3, other=2.0)
            count = count * 2 + t
    tl.store(out + n, total)
    tl.store(sums, count)
"""


@pytest.mark.parametrize("end", [0, 2, 4, 9, 16])
def test_branches_that_follow_each_other(
    from_text: Callable[..., Any], simulated: Callable[..., Any], rng: Any, end: int
) -> None:
    types = {"x": "*fp32:16", "flags": "*i32:16", "out": "*fp32:16", "sums": "*i32:16", "end": "i32"}
    sample = from_text(TWO, types, {"N": 64}, 2)
    assert not [branch for loop in sample.gpu().ops_of(For) for branch in loop.body.walk() if isinstance(branch, If)]
    x, flags = rng.integers(-4, 5, (16, 64)).astype(np.float32), rng.integers(-1, 4, 16).astype(np.int32)
    out, sums = np.full(64, 77, np.float32), np.zeros(1, np.int32)
    simulated(sample, (1,), [x, flags, out, sums, end])
    total, count = np.zeros(64), 0
    for t in range(1, end, 2):
        taken = flags[t] > 0
        row = x[t] if taken else total * 0.5
        total, count = (total + row, count + 1) if taken else (total, count)
        if flags[t] != 2:
            total = np.maximum(total, row) + np.where(np.arange(64) < 61, x[0], 2)
            count = count * 2 + t
    np.testing.assert_allclose(out, total, rtol=1e-6)
    assert sums[0] == count


@pytest.mark.parametrize(
    "inside",
    ["tl.store(out + n, total)", "total += part // begin", "total += tl.sum(tl.load(x + n), 0)", "tl.debug_barrier()"],
)
def test_branches_that_do_more_than_load_and_compute_stay(from_text: Callable[..., Any], inside: str) -> None:
    """They store, divide by what may be zero, or bring threads together, some through shared memory."""
    text = PARTS.format(trips="count", other="").replace(
        "            best = new\n", f"            best = new\n            {inside}\n"
    )
    made = from_text(text, TYPES, {"N": 128, "TRIPS": 1}).gpu()
    assert [branch for loop in made.ops_of(For) for branch in loop.body.walk() if isinstance(branch, If)]
