"""What is read beside products is asked for together, and rows are read as they are spread."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.gpu.layouts.scan import plan_scan, scan_layout
from deuteron.compiler.gpu.ops import ConvertLayout, VectorLoad, VectorStore, WarpBarrier
from deuteron.compiler.options import Schedule
from deuteron.compiler.target import Target
from deuteron.compiler.targets.nvptx import lower_to_llvm
from deuteron.compiler.tile.control import For

STEPS = """
def steps(x, y, h, out, n, N: tl.constexpr, SAME: tl.constexpr, FENCE: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    state = tl.zeros((N, N), tl.float32)
    for t in range(n):
        tl.store(h + t * N * N + i, state.to(tl.float16))
        a = tl.load(x + t * N * N + i)
        first = tl.dot(a, state.to(tl.float16))
        if FENCE:
            tl.debug_barrier()
        b = tl.load((h if SAME else y) + t * N * N + i)
        state += tl.dot(first.to(tl.float16), b)
    tl.store(out + i, state)
"""
POINTERS = dict.fromkeys(("x", "y", "h"), "*fp16:16") | {"out": "*fp32:16", "n": "i32"}


def order(made) -> str:
    """Letters of the loop's body: l for loads, s for stores."""
    loop = next(op for op in made.walk() if isinstance(op, For))
    kinds = ((VectorLoad, "l"), (VectorStore, "s"))
    return "".join(letter for op in loop.body.ops for kind, letter in kinds if isinstance(op, kind))


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
@pytest.mark.parametrize(
    ("constants", "wanted"),
    [
        ({"SAME": False, "FENCE": False}, "lls"),
        ({"SAME": True, "FENCE": False}, "lsl"),  # what the loop writes is read where it was
        ({"SAME": False, "FENCE": True}, "lsl"),
    ],
)
def test_loads_come_where_the_block_begins(to_gpu, target, constants, wanted) -> None:
    made = to_gpu(STEPS, POINTERS, {"N": 64, **constants}, 4, target, num_stages=1)
    assert order(made) == wanted


def test_what_registers_cannot_hold_comes_when_it_is_needed(to_gpu) -> None:
    made = to_gpu(STEPS, POINTERS, {"N": 128, "SAME": False, "FENCE": False}, 4, "cuda:80", num_stages=1)
    assert order(made) == "sll"


ROWS = """
def rows(x, row, out, n, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for t in range(n):
        total += tl.load(x + i[:, None] * N + j[None, :]) * tl.load(row + t * M + i)[:, None]
        total /= tl.sum(tl.sum(total, 1), 0)
    tl.store(out + i[:, None] * N + j[None, :], total)
"""


@pytest.mark.parametrize(("m", "conversions"), [(64, 0), (1024, 1)])
def test_short_rows_are_read_as_they_are_spread(to_gpu, m, conversions) -> None:
    pointers = dict.fromkeys(("x", "row", "out"), "*fp32:16") | {"n": "i32"}
    made = to_gpu(ROWS, pointers, {"M": m, "N": 8}, 1, num_stages=1)
    assert sum(isinstance(op, ConvertLayout) for op in made.walk()) == conversions


PAGES = """
def pages(x, table, sizes, out, n, M: tl.constexpr, N: tl.constexpr, FLOATS: tl.constexpr):
    j = tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for t in range(n):
        row = tl.load(table + t * M + tl.arange(0, M))[:, None]
        if FLOATS:
            total += tl.load(x + tl.arange(0, M)[:, None] * N + j[None, :]) * (row.to(tl.float32) * 2 + 1)
        else:
            total += tl.load(x + (row * 4 + t) * N + j[None, :], mask=row > 0, other=0.0)
    tl.store(out + tl.arange(0, M)[:, None] * N + j[None, :], total)
"""


@pytest.mark.parametrize(
    ("m", "floats", "conversions"),
    [
        (32, False, 0),
        (1024, False, 2),  # addresses and masks, of too many rows for each thread
        (32, True, 1),  # read in vectors
    ],
)
def test_short_rows_of_which_addresses_are_made_are_read_as_these_are_spread(to_gpu, m, floats, conversions) -> None:
    pointers = {"x": "*fp32:16", "table": "*i32:16", "sizes": "*i32:16", "out": "*fp32:16", "n": "i32"}
    made = to_gpu(PAGES, pointers, {"M": m, "N": 16, "FLOATS": floats}, 4, num_stages=1)
    assert sum(isinstance(op, ConvertLayout) for op in made.walk()) == conversions


HANDED_ON = """
def handed_on(x, out, n, N: tl.constexpr, SAME: tl.constexpr, FENCE: tl.constexpr):
    i = tl.arange(0, N)
    before = tl.load(out + i)
    for t in range(n):
        now = tl.load(x + t * N + i)
        if FENCE:
            tl.debug_barrier()
        tl.store(x + t * N + i, now + before if SAME else before)
        before = 0.5 * before + now
    tl.store(out + i, before)
"""


@pytest.mark.parametrize(
    ("same", "fence", "kept"),
    [
        (False, False, True),
        (True, False, False),  # what is stored is made of what is read
        (False, True, False),  # threads meet between them anyway
    ],
)
def test_stores_in_loops_stay_behind_the_loads_before_them(to_gpu, same: bool, fence: bool, kept: bool) -> None:
    """Else an assembler takes them in turns, and waits for memory once for a few of them."""
    pointers = {"x": "*fp32:16", "out": "*fp32:16", "n": "i32"}
    made = to_gpu(HANDED_ON, pointers, {"N": 4096, "SAME": same, "FENCE": fence}, 4)
    loop = next(op for op in made.walk() if isinstance(op, For))
    kinds = [type(op) for op in loop.body.ops if isinstance(op, VectorLoad | VectorStore | WarpBarrier)]
    assert kinds == ([VectorLoad, WarpBarrier, VectorStore] if kept else [VectorLoad, VectorStore])
    assert not any(isinstance(op, WarpBarrier) for op in made.body.ops)


SMALL = """
def small(x, y, h, out, n, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    for t in range(n):
        total = tl.dot(tl.load(x + t * N * N + i), tl.load(y + t * N * N + i), total)
        total -= tl.max(total, 1)[:, None]
    tl.store(out + i, total)
"""


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(64, 32), (64, 16), (16, 128), (4, 8), (256, 2), (8, 64, 4), (32, 1)])
def test_scans_along_other_axes_read_whole_sectors(shape, warps) -> None:
    layout = scan_layout(shape, 0, warps)
    plan = plan_scan(layout, 0)
    # Shared memory is needed only where warps are left over and an axis is long.
    assert plan.warps == (warps if shape == (256, 2) else 1)
    # What neighbouring lanes do not scan they read side by side: 32 bytes of f32, if warps leave that many.
    others = int(np.prod(shape[1:]))
    side_by_side = 1 << sum(bool(any(b[1:])) for b in (*layout.lane, *(b for b in layout.register if not b[0])))
    assert side_by_side >= min(8, others // warps)
    assert plan.lanes * plan.step <= 32 and len(plan.rows[0]) == 1


@pytest.mark.parametrize(
    ("text", "warps", "told"),
    [(ROWS, 1, True), (ROWS, 4, True), (ROWS, 8, False), (STEPS, 2, True), (STEPS, 4, False), (SMALL, 4, False)],
)
def test_small_blocks_with_loops_have_registers_to_spare(to_gpu, text, warps, told) -> None:
    if text is ROWS:
        pointers = dict.fromkeys(("x", "row", "out"), "*fp32:16") | {"n": "i32"}
        made = to_gpu(ROWS, pointers, {"M": 64, "N": 8}, warps)
    elif text is SMALL:
        made = to_gpu(SMALL, POINTERS, {"N": 32}, warps, num_stages=1)
    else:
        made = to_gpu(STEPS, POINTERS, {"N": 64, "SAME": False, "FENCE": False}, warps, num_stages=1)
    program = lower_to_llvm(made, Target.parse("cuda:90a"), Schedule(num_warps=warps))
    assert ('"nvvm.minctasm"="1"' in program.llvm) == told
