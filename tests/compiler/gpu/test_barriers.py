"""Where barriers stand: none too many, and none missing (that is what the simulator's tests look for)."""

from __future__ import annotations

import itertools

import pytest

from deuteron.compiler.gpu.barriers import insert_barriers
from deuteron.compiler.gpu.lifetimes import ByteRange
from deuteron.compiler.gpu.scratch import Allocation, allocate
from deuteron.compiler.ir import Function
from deuteron.compiler.targets import Target
from deuteron.compiler.tile.memory import Barrier
from deuteron.compiler.tile.reduction import Reduce

REDUCE_TWICE = """
def reduce_twice(x_ptr, y_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    x = x - tl.max(x, 0)
    tl.store(y_ptr + tl.arange(0, N), x / tl.sum(x, 0))
"""
POINTERS = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}


def _barriers(function: Function) -> int:
    return sum(isinstance(op, Barrier) for op in function.walk())


def test_scratch_of_neighbours_lies_apart_and_needs_no_barrier(to_gpu) -> None:
    function = to_gpu(REDUCE_TWICE, POINTERS, {"N": 1024})
    places = allocate(function, Target.parse("cuda:90a")).places
    first, second = (places[op] for op in function.walk() if isinstance(op, Reduce))
    assert not first.overlaps(second)
    assert _barriers(function) == 0


def test_small_scratch_lies_apart_too(to_gpu) -> None:
    """Scalars that atomics hand to all threads take 4 bytes each, at places of their own."""
    text = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    a = tl.atomic_add(x_ptr, 1.0, sem="relaxed")
    b = tl.atomic_add(x_ptr + 1, 2.0, sem="relaxed")
    c = tl.atomic_add(x_ptr + 2, 2.0, sem="relaxed")
    tl.store(y_ptr + tl.arange(0, N), tl.arange(0, N) * a + b * c)
"""
    function = to_gpu(text, POINTERS, {"N": 256})
    places = list(allocate(function, Target.parse("cuda:90a")).places.values())
    assert [(place.start % 16, place.end - place.start) for place in places] == [(0, 4)] * 3
    assert not any(a.overlaps(b) for a, b in itertools.combinations(places, 2))
    assert _barriers(function) == 0


def test_scratch_in_one_place_needs_a_barrier_between(to_gpu) -> None:
    function = to_gpu(REDUCE_TWICE, POINTERS, {"N": 1024})
    reduces = [op for op in function.walk() if isinstance(op, Reduce)]
    same = Allocation(dict.fromkeys(reduces, ByteRange(0, 16)), 16)
    assert _barriers(insert_barriers(function, same)) == 1


REDUCE_IN_LOOP = """
def reduce_in_loop(x_ptr, y_ptr, n, N: tl.constexpr):
    total = 0.0
    for i in range(n):
        x = tl.load(x_ptr + i * N + tl.arange(0, N))
        total += tl.max(x, 0)
    tl.store(y_ptr, total)
"""


def test_a_loop_waits_for_its_own_last_iteration(to_gpu) -> None:
    function = to_gpu(REDUCE_IN_LOOP, {**POINTERS, "n": "i32"}, {"N": 1024})
    assert _barriers(function) == 1


@pytest.mark.parametrize(
    "body, wanted",
    [
        # the same thread reads and writes the same element
        ("tl.store(x_ptr + o, tl.load(x_ptr + o) + 1)", 0),
        # another array
        ("tl.store(y_ptr + o, tl.load(x_ptr + (o + 1) % N))", 0),
        # an element that another thread reads
        ("tl.store(x_ptr + o, tl.load(x_ptr + (o + 1) % N))", 1),
        # written by one, read by another
        (
            "tl.store(x_ptr + o, o.to(tl.float32)); tl.store(y_ptr + o, tl.load(x_ptr + (o + 1) % N))",
            1,
        ),
        # read by all, written by one
        ("tl.store(x_ptr, tl.load(x_ptr) + 1)", 1),
        ("tl.debug_barrier(); tl.store(x_ptr + o, tl.load(x_ptr + (o + 1) % N))", 2),
    ],
)
def test_global_hazards(to_gpu, body, wanted) -> None:
    lines = "\n    ".join(part.strip() for part in body.split(";"))
    text = f"def k(x_ptr, y_ptr, N: tl.constexpr):\n    o = tl.arange(0, N)\n    {lines}\n"
    assert _barriers(to_gpu(text, POINTERS, {"N": 256})) == wanted


def test_a_scalar_atomic_releases_what_all_threads_wrote(to_gpu) -> None:
    text = """
def k(x_ptr, lock_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), 1.0)
    tl.atomic_xchg(lock_ptr, 1, sem="{sem}")
"""
    signature = {"x_ptr": "*fp32:16", "lock_ptr": "*i32:16"}
    for sem, wanted in (("release", 1), ("relaxed", 0)):
        assert _barriers(to_gpu(text.format(sem=sem), signature, {"N": 256})) == wanted
