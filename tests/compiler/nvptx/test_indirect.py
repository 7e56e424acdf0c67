"""Boxes whose places are numbers in memory, as in attention over pages: brought ahead of their time like others."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Fetch
from deuteron.compiler.tile.memory import Load

PAGES = """
def pages(q, table, k, v, out, seen, n, sk, M: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):
    m, r, d = tl.arange(0, M), tl.arange(0, PAGE), tl.arange(0, D)
    x = tl.load(q + m[:, None] * D + d[None, :])
    acc = tl.zeros((M, D), tl.float32)
    for i in range(n):
        page = tl.load({entry}).to(tl.int64)
        y = tl.load(k + (page * PAGE + r[None, :]) * sk + d[:, None])
        z = tl.load(v + page * PAGE * sk + r[:, None] * sk + d[None, :])
        acc = tl.dot(tl.dot(x, y).to(tl.float16), z, acc)
        {more}
    tl.store(out + m[:, None] * D + d[None, :], acc)
"""
SIGNATURE = dict.fromkeys(("q", "k", "v"), "*fp16:16") | {"table": "*i32:16", "out": "*fp32:16", "seen": "*i32:16"}
SIZES = {"n": "i32", "sk": "i32:16"}
#: How an entry is read, what else the loop does, and whether boxes are brought ahead.
LOOPS = {
    "a table": ("table + i", "pass", True),
    "a table under a mask": ("table + i, mask=i < 4, other=9", "pass", True),
    "a table that another array is stored beside": ("table + i", "tl.store(seen + i, i)", True),
    "a table that the loop changes": ("table + i", "tl.store(table + i + 2, i)", False),
    "a table that is read anew": ("table + i, volatile=True", "pass", False),
}


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize(("target", "height"), [("cuda:80", 16), ("cuda:90a", 16), ("cuda:90a", 64)])
def test_pages(from_text, run_function, target: str, height: int, name: str, count: int) -> None:
    """With 64 rows products are those of a warp group."""
    entry, more, ahead = LOOPS[name]
    signature = {key: SIGNATURE[key] for key in ("q", "table", "k", "v", "out", "seen")} | SIZES
    made = from_text(PAGES.format(entry=entry, more=more), signature, {"M": height, "D": 64, "PAGE": 16})
    fetches = [op for op in made.gpu(target).walk() if isinstance(op, Fetch)]
    assert bool(fetches) == ahead
    rng = np.random.default_rng(count)
    q, k, v = (rng.integers(-1, 2, (rows, 64)).astype(np.float16) for rows in (height, 160, 160))
    # The table ends with the last page that is read: a read beyond it would be found.
    table = rng.integers(0, 10, count + 2 * ("changes" in name)).astype(np.int32)
    want, entries = np.zeros((height, 64)), table.copy()
    for i in range(count):
        page = 9 if "mask" in name and i >= 4 else entries[i]
        if "changes" in name:
            entries[i + 2] = i
        rows = slice(16 * page, 16 * page + 16)
        want += (q.astype(np.float64) @ k[rows].T.astype(np.float64)) @ v[rows].astype(np.float64)
    out = np.full((height, 64), 77, np.float32)
    seen = np.full(8, -1, np.int32)
    run_function(made.tile(), (1,), [q, table, k, v, out, seen, count, 64], 4, target)
    np.testing.assert_array_equal(out, want)


def test_the_number_is_read_an_iteration_before_the_copy_is_begun(from_text) -> None:
    signature = {key: SIGNATURE[key] for key in ("q", "table", "k", "v", "out", "seen")} | SIZES
    made = from_text(PAGES.format(entry="table + i", more="pass"), signature, {"M": 16, "D": 64, "PAGE": 16})
    scalars = [op for op in made.gpu().walk() if isinstance(op, Load) and not op.pointer.type.rank]
    # The first one, for the first copies, and for those of the loop; none is left for the products.
    assert len(scalars) == 3
