"""Products that go on into the next iteration: gradients of keys and values, whose sums nobody reads in the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Await, Fetch, Settle, Vacate, Wgmma, awaited
from deuteron.compiler.tile.control import For, If, Yield, handed_on
from simulator import SimulationError

#: Queries and gradients of outputs go by; keys and values stay. ``first``: the loop begins with another product.
GRADIENTS = """
def gradients(k, v, q, do, low, dk, dv, steps, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    m, n, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    keys = tl.load(k + n[:, None] * D + d[None, :])
    values = tl.load(v + n[:, None] * D + d[None, :])
    sum_k = tl.zeros((N, D), tl.float32)
    sum_v = tl.zeros((N, D), tl.float32)
    for i in range(steps):
        rows = i * M + m
        queries = tl.load(q + rows[None, :] * D + d[:, None])
        lowest = tl.load(low + rows)
        scores = tl.dot(keys, queries) - lowest[None, :]
        given = tl.load(do + rows[:, None] * D + d[None, :])
        sum_v += tl.dot(scores.to(tl.float16), given)
        change = scores * tl.dot(values, tl.trans(given))
        sum_k += tl.dot(change.to(tl.float16), tl.trans(queries))
    tl.store(dv + n[:, None] * D + d[None, :], sum_v)
    tl.store(dk + n[:, None] * D + d[None, :], sum_k)
"""
POINTERS = (
    dict.fromkeys(("k", "v", "q", "do"), "*fp16:16") | dict.fromkeys(("low", "dk", "dv"), "*fp32:16") | {"steps": "i32"}
)
SIZES = {"M": 32, "N": 64, "D": 32}


def arrays(steps: int, M: int, N: int, D: int) -> list[Any]:
    """Small integers, so that sums and what is rounded to float16 are exact; the results are not written yet."""
    rng = np.random.default_rng(steps)
    k, v = (rng.integers(-1, 2, (N, D)).astype(np.float16) for _ in range(2))
    q, do = (rng.integers(-1, 2, (max(1, steps) * M, D)).astype(np.float16) for _ in range(2))
    low = rng.integers(-2, 3, max(1, steps) * M).astype(np.float32)
    return [k, v, q, do, low, np.full((N, D), 77, np.float32), np.full((N, D), 77, np.float32), steps]


def expected(k: Any, v: Any, q: Any, do: Any, low: Any, dk: Any, dv: Any, steps: int, M: int) -> tuple[Any, Any]:
    """Both gradients, in float64."""
    q, do, low = (x[: steps * M].astype(np.float64) for x in (q, do, low))
    scores = k @ q.T - low
    change = scores * (v @ do.T)
    return change @ q, scores @ do


#: The same, with sums of float16.
IN_HALVES = (
    GRADIENTS.replace("(N, D), tl.float32", "(N, D), tl.float16")
    .replace("given)\n", "given, out_dtype=tl.float16)\n")
    .replace("tl.trans(queries))", "tl.trans(queries), out_dtype=tl.float16)")
)


def test_sums_of_halves_go_on_in_pairs(from_text: Callable[..., Any], run_function: Callable[..., Any]) -> None:
    made = from_text(IN_HALVES, POINTERS, SIZES, 4, num_stages=3)
    loop = _product_loop(made.gpu())
    *_, last = (op for op in loop.body.ops if isinstance(op, Wgmma))
    assert not last.waits and last.result in handed_on(loop.body)
    llvm = made.program().llvm
    assert ".f16.f16.f16" in llvm and "phi half" not in llvm
    given = arrays(5, **SIZES)
    run_function(made.tile(), (1,), given, 4, "cuda:90a", num_stages=3)
    for got, wanted in zip(given[5:7], expected(*given, SIZES["M"]), strict=True):
        assert np.abs(wanted).max() < 1024  # exact in float16
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("steps", "stages"), [(0, 3), (1, 3), (2, 2), (3, 5), (9, 2), (9, 3), (9, 4)])
def test_the_last_product_goes_on_into_the_next_iteration(
    from_text: Callable[..., Any], run_function: Callable[..., Any], steps: int, stages: int
) -> None:
    made = from_text(GRADIENTS, POINTERS, SIZES, 4, num_stages=stages)
    assert _settles(made.gpu())
    given = arrays(steps, **SIZES)
    run_function(made.tile(), (1,), given, 4, "cuda:90a", num_stages=stages)
    dk, dv = expected(*given, SIZES["M"])
    np.testing.assert_array_equal(given[5], dk)
    np.testing.assert_array_equal(given[6], dv)


def test_a_slot_is_filled_again_once_the_product_before_has_read_it(from_text: Callable[..., Any]) -> None:
    made = from_text(GRADIENTS, POINTERS, SIZES, 4, num_stages=3).gpu()
    loop = _product_loop(made)
    seen = [op for op in loop.body.ops if isinstance(op, Wgmma | Await | Settle | Vacate | If | Yield)]
    first, settle, vacate, fetches, wait, *_, last, end = seen
    assert isinstance(first, Wgmma) and isinstance(settle, Settle) and isinstance(vacate, Vacate)
    assert settle.pending == 1 and isinstance(wait, Await) and wait.x is first.result
    assert any(isinstance(op, Fetch) for op in fetches.walk())
    assert isinstance(last, Wgmma) and not last.waits and isinstance(end, Yield) and last.result in end.values
    around = made.body.holder_of(loop).ops
    behind = around[around.index(loop) + 1]
    assert isinstance(behind, Await) and awaited(behind.x) == [last]


def test_it_is_seen_if_a_slot_is_filled_while_the_product_before_reads_it(
    from_text: Callable[..., Any], run_function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deuteron.compiler.gpu.latency.flight.settle_early", lambda loop, writes: None)
    made = from_text(GRADIENTS, POINTERS, SIZES, 4, num_stages=2)
    with pytest.raises(SimulationError):
        run_function(made.tile(), (1,), arrays(9, **SIZES), 4, "cuda:90a", num_stages=2)


LAST = "sum_k += tl.dot(change.to(tl.float16), tl.trans(queries))"
LOOP = "rows = i * M + m\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAST, f"{LAST}\n        sum_k *= 0.5"),
        (LAST, LAST.replace("+=", "=")),
        (LOOP, f"{LOOP}        tl.store(dk + n[:, None] * D + d[None, :], sum_k)\n"),
        (LAST, f"old = sum_k\n        {LAST}\n        tl.store(dk + n[:, None] * D + d[None, :], old)"),
        (LAST, f"{LAST}\n        other, sum_k = sum_k, other"),
    ],
    ids=["scaled", "begun anew", "stored", "stored as they were", "exchanged with others"],
)
def test_sums_that_someone_needs_are_waited_for(
    from_text: Callable[..., Any], run_function: Callable[..., Any], old: str, new: str
) -> None:
    assert GRADIENTS.count(old) == 1
    text = GRADIENTS.replace("    for", "    other = tl.zeros((N, D), tl.float32)\n    for").replace(old, new)
    made = from_text(text, POINTERS, SIZES, 4, num_stages=3)
    assert not _settles(made.gpu())
    given = arrays(3, **SIZES)
    run_function(made.tile(), (1,), given, 4, "cuda:90a", num_stages=3)
    np.testing.assert_array_equal(given[6], expected(*given, SIZES["M"])[1])


#: The first of two products that are added up has an operand that threads make of a sum over all of them.
WRITTEN = """
def written(x, y, q, g, one, two, steps, N: tl.constexpr, M: tl.constexpr, D: tl.constexpr):
    n, m, d = tl.arange(0, N), tl.arange(0, M), tl.arange(0, D)
    x_rows = tl.load(x + n[:, None] * M + m[None, :])
    y_rows = tl.load(y + n[:, None] * M + m[None, :])
    first = tl.zeros((N, D), tl.float32)
    second = tl.zeros((N, D), tl.float32)
    for i in range(steps):
        rows = (i * M + m)[:, None] * D + d[None, :]
        drawn = (m[:, None] * 3 + d[None, :] * 5 + i) * (m[:, None] + i) % 7
        made = ((tl.sum(drawn, 0)[None, :] + m[:, None] + i) % 3 - 1).to(tl.float16)
        first = tl.dot(x_rows, tl.load(q + rows), first)
        second = tl.dot(y_rows, made, second)
        second = tl.dot(x_rows, tl.load(g + rows), second)
    tl.store(one + n[:, None] * D + d[None, :], first)
    tl.store(two + n[:, None] * D + d[None, :], second)
"""


@pytest.mark.parametrize("stages", [2, 3])
def test_an_operand_that_threads_write_is_read_before_it_is_written_again(
    from_text: Callable[..., Any], run_function: Callable[..., Any], stages: int
) -> None:
    N, M, D, steps = 128, 64, 64, 5
    pointers = dict.fromkeys("xyqg", "*fp16:16") | dict.fromkeys(("one", "two"), "*fp32:16") | {"steps": "i32"}
    options = {"num_stages": stages, "maxnreg": 224}  # too few registers for a warp that copies
    made = from_text(WRITTEN, pointers, {"N": N, "M": M, "D": D}, 8, **options)
    assert any(isinstance(op, Vacate) for op in made.gpu().walk())
    rng = np.random.default_rng(stages)
    x, y = (rng.integers(-1, 2, (N, M)).astype(np.float16) for _ in range(2))
    q, g = (rng.integers(-1, 2, (steps * M, D)).astype(np.float16) for _ in range(2))
    one, two = (np.full((N, D), 77, np.float32) for _ in range(2))
    run_function(made.tile(), (1,), [x, y, q, g, one, two, steps], 8, "cuda:90a", **options)
    m, d, i = np.arange(M)[:, None], np.arange(D)[None, :], np.arange(steps)[:, None, None]
    drawn = (m * 3 + d * 5 + i) * (m + i) % 7
    operands = (drawn.sum(1, keepdims=True) + m + i) % 3 - 1
    np.testing.assert_array_equal(one, x.astype(float) @ q.reshape(steps, M, D).sum(0, dtype=float))
    np.testing.assert_array_equal(
        two, y @ operands.sum(0, dtype=float) + x @ g.reshape(steps, M, D).sum(0, dtype=float)
    )


def _product_loop(made: Any) -> For:
    (loop,) = (op for op in made.walk() if isinstance(op, For) and any(isinstance(o, Wgmma) for o in op.body.ops))
    return loop


def _settles(made: Any) -> bool:
    return any(isinstance(op, Settle) for op in _product_loop(made).body.ops)
