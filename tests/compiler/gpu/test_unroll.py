"""Which loops are unrolled, and into what."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.ops import VectorLoad, VectorStore
from deuteron.compiler.ir import Function
from deuteron.compiler.tile.control import For

POINTERS = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}


def _loops(function: Function) -> list[For]:
    return [op for op in function.walk() if isinstance(op, For)]


def _loads(function: Function) -> list[VectorLoad]:
    return [op for op in function.walk() if isinstance(op, VectorLoad)]


@pytest.mark.parametrize(
    "loop, stores",
    [
        ("for i in range(3):; ....tl.store(y_ptr + i * N + o, tl.load(x_ptr + i * N + o))", 3),
        ("for i in range(7, 0, -2):; ....tl.store(y_ptr + i * N + o, i * 1.0)", 4),
        ("for i in range(2):; ....for j in range(3):; ........tl.store(y_ptr + (i * 3 + j) * N + o, i * 1.0)", 6),
        ("for i in range(5, 5):; ....tl.store(y_ptr + i * N + o, i * 1.0)", 0),
    ],
)
def test_a_loop_that_runs_a_few_times_leaves_none(to_gpu, loop, stores) -> None:
    lines = loop.replace(";", "\n   ").replace("....", "    ")
    function = to_gpu(
        f"def k(x_ptr, y_ptr, N: tl.constexpr):\n    o = tl.arange(0, N)\n    {lines}\n", POINTERS, {"N": 128}
    )
    assert not _loops(function)
    assert sum(isinstance(op, VectorStore) for op in function.walk()) == stores


@pytest.mark.parametrize("size, trips, stays", [(128, 100, True), (128, 5, False), (16384, 17, True)])
def test_long_bodies_and_many_turns_stay_loops(to_gpu, size, trips, stays) -> None:
    text = """
def k(x_ptr, y_ptr, N: tl.constexpr, TRIPS: tl.constexpr):
    o = tl.arange(0, N)
    for i in range(TRIPS):
        tl.store(y_ptr + i * N + o, tl.load(x_ptr + i * N + o) + i)
"""
    function = to_gpu(text, POINTERS, {"N": size, "TRIPS": trips})
    assert bool(_loops(function)) == stays


SUM = """
def k(x_ptr, y_ptr, n, N: tl.constexpr, TRIPS: tl.constexpr):
    o = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for i in range({bounds}):
        total += {value}
    tl.store(y_ptr + o, total)
"""


@pytest.mark.parametrize(
    "bounds, value, size, loads, masked",
    [
        ("n", "tl.load(x_ptr + i * N + o)", 128, 4, 3),
        ("0, n, 8", "tl.load(x_ptr + i * N + o)", 256, 4, 3),
        ("n, 2 * n, 3", "tl.load(x_ptr + i)", 128, 4, 3),
        ("n, 0, -1", "tl.load(x_ptr + i * N + o)", 128, 4, 3),
        ("n", "tl.load(x_ptr + i + o, mask=o < n)", 128, 4, 4),
        # whole turns
        ("TRIPS", "tl.load(x_ptr + i * N + o)", 128, 4, 0),
        # what waits for others, or combines threads; loads enough as it is
        ("n", "tl.load(x_ptr + i * N + o, volatile=True)", 128, 1, 0),
        ("n", "tl.sum(tl.load(x_ptr + i * N + o), 0)", 128, 1, 0),
        ("n", "tl.load(x_ptr + i * N + o)", 8192, 1, 0),
    ],
)
def test_four_iterations_that_wait_for_loads_are_one_turn(to_gpu, bounds, value, size, loads, masked) -> None:
    signature = {**POINTERS, "n": "i32"}
    function = to_gpu(SUM.format(bounds=bounds, value=value), signature, {"N": size, "TRIPS": 100})
    (loop,) = _loops(function)
    found = [op for op in loop.body.ops if isinstance(op, VectorLoad)]
    assert (len(found), sum(op.mask is not None for op in found)) == (loads, masked)


def test_a_loop_that_stores_is_no_turn(to_gpu) -> None:
    text = SUM.format(bounds="n", value="tl.load(x_ptr + i * N + o)\n        tl.store(y_ptr + i * N + o, total)")
    function = to_gpu(text, {**POINTERS, "n": "i32"}, {"N": 128, "TRIPS": 1})
    assert len(_loads(function)) == len(_loops(function)) == 1


STATES = """
def states(x_ptr, s, TRIPS: tl.constexpr, N: tl.constexpr):
    at = x_ptr + tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for i in range(TRIPS):
        current = tl.load(at)
        tl.store(at, total)
        total = total * s + current
        at += N
"""


@pytest.mark.parametrize(
    "trips, size, stays", [(8, 4096, False), (16, 1024, False), (17, 4096, True), (8, 16384, True)]
)
def test_loops_that_load_and_store_are_unrolled_where_they_are_short(to_gpu, trips, size, stays) -> None:
    made = to_gpu(STATES, {"x_ptr": "*fp32:16", "s": "fp32"}, {"TRIPS": trips, "N": size})
    assert bool(_loops(made)) == stays
