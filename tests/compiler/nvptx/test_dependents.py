"""Kernels that begin while the one before them still runs: nothing that they read may be read before they wait for it,
whoever reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Fetch, RingBuffer, Roles
from deuteron.compiler.ir.core import Block, Op
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import emit_ptx
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.memory import GridWait, LaunchDependents
from simulator import assembly, simulate_launch

PRODUCT = """
def product(a, b, out, K, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    {first}
    for k in range(0, K, BLOCK):
        {inside}
        left = tl.load(a + rows * K + k + columns)
        sums = tl.dot(left, tl.load(b + (k + rows) * BLOCK + columns), sums)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(out + (tl.program_id(0) * BLOCK + rows) * BLOCK + columns, sums)
"""
#: One loop needs nothing of the kernel before, as over weights; the other one does.
WEIGHTS_FIRST = """
def product(a, b, out, K, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        weights = tl.load(b + (k + rows) * BLOCK + columns)
        sums = tl.dot(weights, weights, sums)
    tl.extra.cuda.gdc_wait()
    for k in range(0, K, BLOCK):
        left = tl.load(a + rows * K + k + columns)
        sums = tl.dot(left, tl.load(b + (k + rows) * BLOCK + columns), sums)
    tl.store(out + (tl.program_id(0) * BLOCK + rows) * BLOCK + columns, sums)
"""
WAIT = "tl.extra.cuda.gdc_wait()"
FIRST = PRODUCT.format(first=WAIT, inside="pass")
IN_THE_LOOP = PRODUCT.format(first="pass", inside=WAIT)
IN_A_BRANCH = PRODUCT.format(first=f"if K > 0:\n        {WAIT}", inside="pass")
BY_DATA = PRODUCT.format(
    first=f"if tl.sum(tl.load(b + tl.arange(0, BLOCK)).to(tl.float32)) > -9e9:\n        {WAIT}", inside="pass"
)
KERNELS = {"first": FIRST, "loop": IN_THE_LOOP, "branch": IN_A_BRANCH, "data": BY_DATA, "weights": WEIGHTS_FIRST}
TYPES = {"a": "*fp16:16", "b": "*fp16:16", "out": "*fp32:16", "K": "i32:16"}
BLOCK = 64


def compiled(from_text: Callable[..., Any], text: str, warps: int = 4, **schedule: object) -> Any:
    return from_text(text, TYPES, {"BLOCK": BLOCK}, warps, **schedule)


def in_order(block: Block) -> Iterator[Op]:
    """All operations of ``block`` as they stand in its text."""
    for op in block.ops:
        yield op
        for nested in op.blocks:
            yield from in_order(nested)


def kinds(ops: Sequence[Op], *wanted: type[Op]) -> list[type[Op]]:
    return [type(op) for op in ops if isinstance(op, wanted)]


#: Arrays of a simulated launch with what they hold from the first griddepcontrol.wait on.
Arriving = list[tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def arriving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arriving]:
    made: Arriving = []

    def maker(statement: Any, parsed: Any) -> Any:
        def run(warp: Any, lanes: Any) -> None:
            for array, ready in made:
                start = warp.memory.start(array)
                warp.memory.bytes[start : start + array.nbytes] = ready.view(np.uint8).reshape(-1)

        return run

    monkeypatch.setattr(assembly, "_MAKERS", {"griddepcontrol.wait": maker, **assembly._MAKERS})
    yield made
    made.clear()


CASES = [*((kernel, "cuda:90a", None) for kernel in KERNELS), ("first", "cuda:90", None), ("loop", "cuda:120", None)]
CASES += [("weights", "cuda:120", None), ("weights", "cuda:90a", True)]


@pytest.mark.parametrize(("kernel", "target", "persistent"), CASES)
def test_what_the_kernel_before_writes_is_read_behind_the_wait(
    from_text, arriving: Arriving, kernel: str, target: str, persistent: bool | None
) -> None:
    """``a`` is NaN until somebody waits. Warps run in rising and in falling order, so that a producer that does not
    wait is the first to read."""
    rng = np.random.default_rng(0)
    ready = rng.integers(-3, 4, (BLOCK, 4 * BLOCK)).astype(np.float16)
    b = rng.integers(-3, 4, (4 * BLOCK, BLOCK)).astype(np.float16)
    made = compiled(from_text, KERNELS[kernel], persistent=persistent)
    expected = ready.astype(np.float64) @ b.astype(np.float64)
    if kernel == "weights":
        expected = expected + sum(part @ part for part in np.split(b.astype(np.float64), 4))
    program = made.program(target)
    for order in (range, lambda count: range(count - 1, -1, -1)):
        a, out = np.full_like(ready, np.nan), np.zeros((2, BLOCK, BLOCK), np.float32)
        arriving[:] = [(a, ready)]
        simulate_launch(lambda denied: program, (2,), [a, b, out, 4 * BLOCK], order=order)
        np.testing.assert_array_equal(out, [expected] * 2)


def test_the_producer_waits_as_well(from_text) -> None:
    """One that did not would fetch what is not there yet."""
    gpu = compiled(from_text, FIRST).gpu("cuda:90a")
    (roles,) = [op for op in gpu.walk() if isinstance(op, Roles)]
    assert kinds([*in_order(roles.producer)], GridWait, Fetch) == [GridWait, Fetch, Fetch]
    assert kinds([*in_order(roles.consumer)], GridWait, For, LaunchDependents) == [GridWait, For, LaunchDependents]
    weights = compiled(from_text, WEIGHTS_FIRST).gpu("cuda:90a")
    (roles,) = [op for op in weights.walk() if isinstance(op, Roles)]
    assert kinds([*in_order(roles.producer)], GridWait, For) == [For, GridWait, For]


@pytest.mark.parametrize("target", ["cuda:90a", "cuda:120"])
def test_a_loop_that_waits_is_not_fetched_ahead(from_text, target: str) -> None:
    for text, rings in ((IN_THE_LOOP, False), (FIRST, True)):
        gpu = compiled(from_text, text).gpu(target)
        assert any(isinstance(op, RingBuffer) for op in gpu.walk()) == rings


def test_no_producer_where_waiting_depends_on_what_is_computed(from_text) -> None:
    gpu = compiled(from_text, BY_DATA).gpu("cuda:90a")
    assert not [op for op in gpu.walk() if isinstance(op, Roles)]


SUM = """
def added(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    weights = tl.load(y + i)
    tl.extra.cuda.gdc_wait()
    total = tl.load(x + i) + weights
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(out + i, total)
"""


def ptx_of(from_text: Callable[..., Any], target: str, **schedule: object) -> tuple[Any, str]:
    pointers = dict.fromkeys(("x", "y", "out"), "*fp32:16")
    sample = from_text(SUM, pointers, {"BLOCK": 128}, 4, **schedule)
    program = sample.program(target)
    return program, emit_ptx(program, Target.parse(target))


@pytest.mark.parametrize("target", ["cuda:90", "cuda:90a", "cuda:100a", "cuda:120"])
def test_instructions_stay_where_the_kernel_has_them(from_text, target: str) -> None:
    _, ptx = ptx_of(from_text, target)
    marks = ("ld.global", "griddepcontrol.wait;", "griddepcontrol.launch_dependents;", "st.global")
    found = [mark for line in ptx.splitlines() for mark in marks if mark in line]
    assert found == [marks[0], marks[1], marks[0], marks[2], marks[3]]


def test_older_gpus_have_nothing_to_say(from_text) -> None:
    program, ptx = ptx_of(from_text, "cuda:80", launch_pdl=True)
    assert "griddepcontrol" not in ptx and not program.recipe.programmatic


def test_only_kernels_that_wait_begin_early(from_text) -> None:
    """Another one would read what the kernel before has not written yet, as nothing tells it when that is."""
    assert ptx_of(from_text, "cuda:90a", launch_pdl=True)[0].recipe.programmatic
    assert not ptx_of(from_text, "cuda:90a")[0].recipe.programmatic
    silent = PRODUCT.format(first="pass", inside="pass")
    assert not compiled(from_text, silent, launch_pdl=True).gpu("cuda:90a").recipe.programmatic
    assert compiled(from_text, FIRST, launch_pdl=True).gpu("cuda:90a").recipe.programmatic


def test_a_cooperative_grid_is_not_made_persistent(from_text) -> None:
    """Where the schedule leaves it to the compiler."""
    text = PRODUCT.format(first="pass", inside="pass")
    for cooperative in (False, True):
        made = from_text(text, TYPES, {"BLOCK": 128}, 8, launch_cooperative_grid=cooperative).gpu("cuda:90a")
        assert (made.recipe.persistent, made.recipe.cooperative) == (not cooperative, cooperative)
