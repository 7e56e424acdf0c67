"""Assignment expressions, questions for attributes, and the small names of the language."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError, UnknownName


@triton.jit
def walrus(x, out, n, LIMIT: tl.constexpr):
    """Bound in an argument, in a condition that is known, in one that is not, and in the body of a loop."""
    total = tl.load(x + (i := 1)) + i
    if (half := LIMIT // 2) > 2:
        total += half
    if (first := tl.load(x)) > 3:
        total += first
    for k in range(n):
        if (v := tl.load(x + k)) > 4 and (w := v * 2) > 9:
            total += w
    tl.store(out, total)


@triton.jit
def walrus_while(x, out):
    """Until an element that is zero; its place is known behind the loop."""
    place = -1
    total = 0
    value = 0
    while (value := tl.load(x + (place := place + 1))) != 0:
        if value == 13:
            continue
        total += value
        if total > 1000:
            break
    tl.store(out, total)
    tl.store(out + 1, place)
    tl.store(out + 2, value)


@triton.jit
def ask(x, out, FIELD: tl.constexpr):
    v = tl.load(x + tl.arange(0, 4))
    total = tl.sum(v) if hasattr(v, "shape") else 0.0
    if hasattr(v, "no_such_thing") or hasattr(tl, "no_such_function"):
        total += 1000
    total += getattr(v, "no_such_thing", 10)
    scale: tl.constexpr = getattr(v, FIELD)[0]
    best = getattr(tl, "max")(v, 0)  # noqa: B009
    tl.store(out, total * scale + best)


@triton.jit
def items(x, out):
    one = tl.load(x + tl.arange(0, 1))
    several = tl.sum(tl.load(x + tl.arange(0, 4))[None, :], 1, keep_dims=True)
    tl.store(out, one.item() + several.item())


@triton.jit
def count_down(x: tl.const, out, n):
    total = 0
    while tl.condition(n > 0, disable_licm=True):
        total += tl.load(x + n - 1)
        n -= 1
    tl.store(out, total)


@triton.jit
def tuples(x, out):
    pair = tl.tuple((tl.load(x), tl.load(x + 1)))
    if isinstance(pair, tl.tuple):
        tl.store(out, pair[0] * 10 + pair[1])


@triton.jit
def stores_const(x: tl.const):
    tl.store(x, 1.0)


@triton.jit
def walrus_beside(x, n):
    y = (z := 1) if n > 2 else 2
    tl.store(x, y + z)


@triton.jit
def items_of_many(x):
    tl.store(x, tl.load(x + tl.arange(0, 4)).item())


@triton.jit
def ask_nothing(x):
    tl.store(x, getattr(x, "nothing"))  # noqa: B009


def test_assignment_expressions(launch):
    x = np.array([7, 2, 5, 4, 6, 0], np.int32)
    want = 2 + 1 + 4 + 7 + sum(2 * v for v in x if v > 4 and 2 * v > 9)
    assert launch(walrus, (1,), x, np.zeros(1, np.int32), 6, LIMIT=8)[1][0] == want


@pytest.mark.parametrize("values", [[5, 6, 7, 0], [0], [13, 5, 13, 13, 0], [600, 600, 3, 0]])
def test_assignment_in_the_condition_of_a_loop(launch, values):
    total, place = 0, 0
    while values[place] != 0:
        if values[place] != 13:
            total += values[place]
            if total > 1000:
                break
        place += 1
    got = launch(walrus_while, (1,), np.array(values, np.int32), np.zeros(3, np.int32))[1]
    np.testing.assert_array_equal(got, [total, place, values[place]])


@triton.jit
def operands(x, o, n, m, zero, NONE: tl.constexpr):
    tl.store(o, n and 5)
    tl.store(o + 1, n or 7)
    tl.store(o + 2, 0 or n)
    tl.store(o + 3, (3 and n) + 100)
    tl.store(o + 4, n and m)
    tl.store(o + 5, zero or m or 0)
    tl.store(o + 6, n and m and 0)
    tl.store(o + 7, (n > 5) and 6)
    tl.store(o + 8, 1 and 2 and 3)
    tl.store(o + 9, (NONE or n) and 1)
    k = 5
    tl.store(o + 10, k and 3)
    tl.store(o + 11, k or n)
    tl.store(o + 12, k and n)
    tl.store(o + 13, (zero or (m and 0)) + 10)
    tl.store(o + 14, zero and tl.load(x + 100))
    tl.store(o + 15, n or 7 or tl.load(x + n))  # noqa: SIM222 -- what is right of it is not evaluated
    tile = tl.arange(0, 4)
    tl.store(o + 16 + tile, tile and 3)
    tl.store(o + 20 + tile, 0 or tile)
    tl.store(o + 24 + tile, tile and tile + n)


def test_and_and_or_give_operands(launch):
    """Known operands that do not decide have no effect, those that do are the result, and two others give a boolean."""
    got = launch(operands, (1,), np.zeros(128, np.int32), np.full(28, -1, np.int64), 5, 4, 0, NONE=None)[1].tolist()
    assert got[:16] == [5, 7, 5, 105, 1, 1, 0, 0, 3, 5, 5, 1, 1, 10, 0, 7]
    assert got[16:] == [0, 1, 2, 3] * 2 + [0, 1, 1, 1]


def test_attributes(launch):
    x = np.array([1, 5, 3, 2], np.float32)
    assert launch(ask, (1,), x, np.zeros(1, np.float32), FIELD="shape")[1][0] == (11 + 10) * 4 + 5


def test_items(launch):
    x = np.array([1, 5, 3, 2], np.float32)
    assert launch(items, (1,), x, np.zeros(1, np.float32))[1][0] == 12


def test_conditions_of_loops(launch):
    x = np.arange(10, dtype=np.int32)
    assert launch(count_down, (1,), x, np.zeros(1, np.int32), 7)[1][0] == 21


def test_tuples(launch):
    assert launch(tuples, (1,), np.array([4, 2], np.int32), np.zeros(1, np.int32))[1][0] == 42


@pytest.mark.parametrize(
    ("kernel", "signature", "said"),
    [
        (stores_const, {"x": "*const fp32"}, "Cannot store to a constant pointer"),
        (walrus_beside, {"x": "*fp32", "n": "i32"}, "assign in an 'if' statement"),
        (items_of_many, {"x": "*fp32"}, "needs exactly one element"),
        (ask_nothing, {"x": "*fp32"}, "no attribute 'nothing'"),
    ],
)
def test_mistakes_are_shown_where_they_are(kernel, signature, said):
    with pytest.raises(CompilationError) as caught:
        triton.compile(kernel, signature)
    assert said in str(caught.value)
    assert "^" in str(caught.value)


def test_const_parameters_are_const_in_launches():
    with pytest.raises(CompilationError, match="constant pointer"):
        stores_const[(1,)](np.zeros(1, np.float32))


def test_missing_attributes_are_unknown_names():
    with pytest.raises(UnknownName, match="nothing"):
        triton.compile(ask_nothing, {"x": "*fp32"})


@triton.jit
def between(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    inside = (1 <= x < n).to(tl.int32)
    tl.store(o_ptr + i, inside + 10 * (0 < x <= 3 < n).to(tl.int32))
    calls = 0
    if 2 < (calls := calls + 5) <= n != 3:
        tl.store(o_ptr, calls)


def test_comparisons_of_tiles_are_chained(launch) -> None:
    x = np.arange(16, dtype=np.int32)
    expected = ((x >= 1) & (x < 7)) + 10 * ((x > 0) & (x <= 3))
    expected[0] = 5
    assert launch(between, (1,), x, np.zeros(16, np.int32), 7, BLOCK=16)[1].tolist() == expected.tolist()
