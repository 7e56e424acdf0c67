"""Lists of places that loops around products read: they come an iteration before the tiles that lie there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deuteron.compiler.gpu import overlap
from deuteron.compiler.gpu.asynchronous import FetchTile
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.memory import Load

KERNEL = """
def paged(q, table, places, k, v, out, seen, length, M: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    m, d, b = tl.arange(0, M), tl.arange(0, D), tl.arange(0, B)
    x = tl.load(q + m[:, None] * D + d[None, :])
    for turn in range(2):
        acc = tl.zeros((M, D), tl.float32)
        for start in range(0, length, B):
            n = start + b
            page = {entry}
            at = (page * 4 + n % 4).to(tl.int64)
            y = tl.load(k + at[None, :] * D + d[:, None], mask=n[None, :] < length, other=0.0)
            z = tl.load(v + at[:, None] * D + d[None, :], mask=n[:, None] < length, other=0.0)
            acc = tl.dot(tl.dot(x, y).to(tl.float16), z, acc)
            {more}
        tl.store(out + turn * M * D + m[:, None] * D + d[None, :], acc)
"""
HALVES, NUMBERS = ("q", "k", "v"), ("table", "places", "seen")
SIGNATURE = dict.fromkeys(HALVES, "*fp16:16") | dict.fromkeys(NUMBERS, "*i32:16") | {"out": "*fp32:16", "length": "i32"}
ENTRY = "tl.load(table + n // 4, mask=n < length, other=0)"
#: How pages are found, what else the loop does, and how many loads of its tables come early: for copies, which are a
#: slot ahead of the loop, and for what the loop itself does with pages.
LOOPS = {
    "a table": (ENTRY, "pass", 1),
    "a table of a table": ("tl.load(places + " + ENTRY + ", mask=n < length, other=0)", "pass", 1),
    "two tables": (ENTRY + " ^ tl.load(places + n // 4, mask=n < length, other=0)", "pass", 2),
    "a table that products need": (ENTRY, "acc += tl.sum(page)", 2),
    "one number": ("tl.load(table + start // 16)", "pass", 1),
    "another array written": (ENTRY, "tl.store(seen + n, page, mask=n < length)", 2),
    "a table that the loop changes": (ENTRY, "tl.store(table + n, page * 0, mask=n < 0)", 0),
    "a table that is read anew": (ENTRY.replace("other=0", "other=0, volatile=True"), "pass", 0),
}


def early(function: Any) -> int:
    """Tables that loops around products carry from iteration to iteration."""
    loops = [op for op in function.walk() if isinstance(op, For) and not op.body.ops_of(For)]
    found = 0
    for loop in loops:
        carried = set(loop.body.terminator.values)
        if any(isinstance(op, FetchTile) for op in loop.body.walk()) and loop.num_stages == 0:
            found = sum(isinstance(op, Load) and not carried.isdisjoint(op.results) for op in loop.body.ops)
    return found


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize("name", LOOPS)
def test_tables_that_nobody_changes_come_early(from_text: Callable[..., Any], target: str, name: str) -> None:
    entry, more, wanted = LOOPS[name]
    made = from_text(KERNEL.format(entry=entry, more=more), SIGNATURE, {"M": 16, "D": 64, "B": 16})
    assert early(made.gpu(target)) == wanted


@pytest.mark.parametrize("length", [0, 1, 16, 17, 70])
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize(("target", "slots"), [("cuda:80", 1), ("cuda:80", 2), ("cuda:90a", 3), ("cuda:120", 3)])
def test_results(
    from_text: Callable[..., Any],
    run_function: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    slots: int,
    name: str,
    length: int,
) -> None:
    """Also with one slot that is filled again. Tables end with the last entry that is read: the simulator finds reads
    beyond it."""
    monkeypatch.setattr(
        overlap, "economised", lambda stream, *_, **__: replace(stream, slots=slots, refilled=slots == 1)
    )
    entry, more, _ = LOOPS[name]
    made = from_text(KERNEL.format(entry=entry, more=more), SIGNATURE, {"M": 16, "D": 64, "B": 16})
    rng = np.random.default_rng(length)
    q, k, v = (rng.integers(-1, 2, (rows, 64)).astype(np.float16) for rows in (16, 64, 64))
    count = -(-length // (16 if name == "one number" else 4))
    table, places = (rng.permutation(16)[np.arange(count) % 16].astype(np.int32) for _ in range(2))
    if name == "a table of a table":
        places = rng.permutation(16).astype(np.int32)
    out, seen = np.full((2, 16, 64), 77, np.float32), np.full(80, -1, np.int32)
    n = np.arange(length)
    page = {
        "a table of a table": lambda: places[table[n // 4]],
        "two tables": lambda: table[n // 4] ^ places[n // 4],
        "one number": lambda: table[n // 16],
    }.get(name, lambda: table[n // 4])()
    at = page * 4 + n % 4
    scores = (q.astype(np.float64) @ k[at].T.astype(np.float64)).astype(np.float16).astype(np.float64)
    wanted = scores @ v[at].astype(np.float64)
    if "products need" in name:
        wanted += page.sum()
    run_function(made.tile(), (1,), [q, table, places, k, v, out, seen, length], 4, target)
    np.testing.assert_array_equal(out, np.stack([wanted, wanted]))
    if "written" in name:
        np.testing.assert_array_equal(seen[:length], page)
