"""Places in shared memory: what shares them with idle rings, and what may not (the simulator's part is in
``tests/compiler/nvptx/test_idle_rings.py``)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deuteron.compiler.gpu.asynchronous import Pipe, Put, RingBuffer, Roles
from deuteron.compiler.gpu.memory.barriers import insert_barriers
from deuteron.compiler.gpu.memory.lifetimes import ByteRange, Lifetime, Lifetimes, TakenBytes
from deuteron.compiler.gpu.memory.scratch import CONVERSION_BYTES, GpuFunction
from deuteron.compiler.gpu.ops import ConvertLayout
from deuteron.compiler.ir import Function
from deuteron.compiler.ir.core import Op
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.memory import Barrier
from deuteron.compiler.tile.reduction import Reduce

PRODUCT = """
def product(a, b, c, K, s, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        rk = start + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * s + rk[None, :], mask=rk[None, :] < K, other=0.0)
        y = tl.load(b + rk[:, None] * s + rn[None, :], mask=rk[:, None] < K, other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * s + rn[None, :], acc.to(tl.float16))
"""
#: What the inner loop makes is an operand in shared memory, on warp groups.
CHAIN = """
def chain(a, b, c, K, s, n):
    r = tl.arange(0, 64)
    first = tl.load(a + r[:, None] * s + r[None, :])
    total = tl.zeros((64, 64), tl.float32)
    for turn in range(n):
        acc = tl.zeros((64, 64), tl.float32)
        for start in range(0, K, 64):
            k = start + tl.arange(0, 64)
            acc = tl.dot(tl.load(a + r[:, None] * s + k[None, :]), tl.load(b + k[:, None] * s + r[None, :]), acc)
        total = tl.dot(first, acc.to(tl.float16), total)
    tl.store(c + r[:, None] * s + r[None, :], total.to(tl.float16))
"""
POINTERS = dict.fromkeys(("a", "b", "c"), "*fp16:16")
SIZES = dict.fromkeys(("K", "s"), "i32:16")


def product(
    to_gpu, target: str, num_stages: int, block: tuple[int, int, int] = (128, 128, 64), **schedule: object
) -> GpuFunction:
    blocks = dict(zip(("BM", "BN", "BK"), block, strict=True))
    return to_gpu(PRODUCT, {**POINTERS, **SIZES}, blocks, 8, target, num_stages, **schedule)


@pytest.fixture
def two_products(to_gpu, ring_kernel) -> Callable[[str, int], GpuFunction]:
    """``two_products(target, second)``, where ``second`` is the depth of the second loop's tiles."""
    types = {**POINTERS, "d": "*fp16:16", "e": "*fp32:16", **SIZES}
    text = ring_kernel("two_products")
    return lambda target, second: to_gpu(text, types, {"FIRST": 64, "SECOND": second}, 4, target)


def rings(function: GpuFunction) -> list[ByteRange]:
    return [function.allocation.places[op] for op in function.walk() if isinstance(op, RingBuffer)]


def passing(function: GpuFunction) -> list[Op]:
    """What passes through shared memory on its way to other threads or to memory, in program order."""
    places = function.allocation.places
    return [op for op in function.walk() if op in places and isinstance(op, ConvertLayout | Put | Reduce)]


def on_rings(function: GpuFunction) -> list[list[int]]:
    """For each operation of :func:`passing`, the numbers of the rings on which it lies."""
    places = [function.allocation.places[op] for op in passing(function)]
    return [[i for i, ring in enumerate(rings(function)) if place.overlaps(ring)] for place in places]


@pytest.mark.parametrize(
    ("target", "asked", "slots"),
    [
        ("cuda:86", 3, 3),
        ("cuda:120", 3, 3),
        ("cuda:120", 5, 3),
        ("cuda:80", 5, 5),
        ("cuda:90a", 6, 6),
        ("cuda:100a", 6, 6),
    ],
)
def test_results_pass_through_idle_slots(to_gpu, target: str, asked: int, slots: int) -> None:
    """A slot is 32 KiB, as is the result; sm_86 and sm_120 have 99 KiB, sm_80 163."""
    made = product(to_gpu, target, asked, persistent=False)
    assert made.num_slots == slots
    assert sum(ring.end - ring.start for ring in rings(made)) == slots * 32 * 1024
    assert made.allocation.total < slots * 32 * 1024 + 128
    assert passing(made) and all(on_rings(made))


@pytest.mark.parametrize("target", ["cuda:86", "cuda:120"])
def test_a_result_larger_than_the_ring_reaches_beyond_it(to_gpu, target: str) -> None:
    """64 KiB over 48: the state of pipes is not in the way."""
    made = product(to_gpu, target, 2, (256, 128, 32), persistent=False)
    assert made.num_slots == 2
    assert 64 * 1024 < made.allocation.total < 64 * 1024 + 128
    state = [made.allocation.places[op] for op in made.walk() if isinstance(op, Pipe)]
    assert state and not any(
        other.overlaps(p) for p in state for other in made.allocation.places.values() if other != p
    )


@pytest.mark.parametrize(("target", "slots"), [("cuda:86", 2), ("cuda:90a", 5), ("cuda:100a", 3)])
def test_rings_of_programs_that_go_on_are_never_idle(to_gpu, target: str, slots: int) -> None:
    """The producer fills them for the next tile while the result of this one is on its way."""
    made = product(to_gpu, target, 3, persistent=True)
    assert made.num_slots == slots
    assert passing(made) and not any(on_rings(made))


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
def test_rings_of_loops_that_come_round_are_never_idle(to_gpu, ring_kernel, target: str) -> None:
    types = {**POINTERS, "d": "*fp32:16", **SIZES, "n": "i32"}
    made = to_gpu(ring_kernel("in_a_loop"), types, {}, 4, target)
    assert rings(made) and passing(made) and not any(on_rings(made))


def test_tiles_of_an_outer_loop_lie_beside_the_rings_of_an_inner_one(to_gpu) -> None:
    made = to_gpu(CHAIN, {**POINTERS, **SIZES, "n": "i32"}, {})
    *tiles, result = on_rings(made)
    assert tiles == [[], []] and result


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
def test_a_later_ring_is_not_used_before_its_loop(two_products, target: str) -> None:
    """A producer fills it while the first loop runs."""
    made = two_products(target, 32)
    assert any(isinstance(op, Roles) for op in made.walk()) == (target == "cuda:90a")
    first, *others = on_rings(made)
    assert len(rings(made)) == 4 and set(first) <= {0, 1} and first
    assert any(others)


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
def test_a_ring_of_two_loops_is_idle_after_the_second(two_products, target: str) -> None:
    made = two_products(target, 64)
    first, *others = on_rings(made)
    assert len(rings(made)) == 2 and not first and any(others)


def test_threads_wait_for_each_other_before_they_write_to_an_idle_ring(to_gpu) -> None:
    """The loop's own barriers are before it reads."""
    made = product(to_gpu, "cuda:80", 3)
    ops = made.body.ops
    loop = max(i for i, op in enumerate(ops) if isinstance(op, For))
    scratch = next(i for i, op in enumerate(ops) if i > loop and op in made.allocation.places)
    assert any(isinstance(op, Barrier) for op in ops[loop:scratch])
    before = sum(isinstance(op, Barrier) for op in made.walk())
    insert_barriers(made, made.allocation)
    assert sum(isinstance(op, Barrier) for op in made.walk()) == before


def test_what_runs_in_a_loop_lasts_as_long_as_the_loop(to_gpu) -> None:
    made: Function = product(to_gpu, "cuda:80", 3)
    lifetimes = Lifetimes(made)
    loop = [op for op in made.body.ops if isinstance(op, For)][-1]
    for op in loop.body.ops:
        assert lifetimes.during(op) == lifetimes.during(loop) and lifetimes.comes_round(op)
        assert lifetimes.since(op).begin == lifetimes.during(loop).begin
    assert not lifetimes.comes_round(loop)


def test_the_lowest_place_is_behind_all_that_is_needed_at_the_same_time() -> None:
    taken = TakenBytes()
    assert taken.end == 0
    taken.take(ByteRange(0, 100), Lifetime(0, 5))
    taken.take(ByteRange(200, 300), Lifetime(4, 9))
    assert taken.end == 300
    assert taken.lowest(64, Lifetime(6, 7), 16) == ByteRange(0, 64)
    assert taken.lowest(64, Lifetime(5, 7), 16) == ByteRange(112, 176)
    assert taken.lowest(96, Lifetime(5, 7), 16) == ByteRange(304, 400)
    assert taken.lowest(96, Lifetime(0, 3), 16, first=90) == ByteRange(112, 208)
    assert taken.lowest(96, Lifetime(10, 11), 16, first=90) == ByteRange(96, 192)


@pytest.mark.parametrize(("target", "slots"), [("cuda:86", 1), ("cuda:80", 1), ("cuda:90a", 1), ("cuda:120", 1)])
def test_one_slot_is_better_than_none(to_gpu, target: str, slots: int) -> None:
    """Where two do not fit, copies still fill the memory that products read; a slot is 64 KiB, or 128."""
    block = (128, 128, 128) if target in ("cuda:86", "cuda:120") else (256, 256, 128)
    assert product(to_gpu, target, 3, block, persistent=False).num_slots == slots


#: A result that threads add to memory element by element, and that another layout suits better than the product's.
ADDED = """
def added(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr):
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, 32):
        rk = start + tl.arange(0, 32)
        acc += tl.dot(tl.load(a + rm[:, None] * K + rk[None, :]), tl.load(b + rk[:, None] * BN + rn[None, :]))
    tl.atomic_add(c + rm[:, None] * BN + rn[None, :], acc)
"""


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
def test_large_results_are_converted_in_parts(to_gpu, target: str) -> None:
    pointers = dict.fromkeys(("a", "b", "c"), "*fp32:16")
    made = to_gpu(ADDED, {**pointers, "K": "i32:16"}, {"BM": 256, "BN": 256}, 4, target)
    places = [place for op, place in made.allocation.places.items() if isinstance(op, ConvertLayout)]
    assert max(place.end - place.start for place in places) == CONVERSION_BYTES < 256 * 256 * 4
