"""Loops that hand a state on, as linear attention does: products in a row, with stores and rows beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Await, Release, RingBuffer, SharedView, Slot, Wgmma, added_up
from deuteron.compiler.gpu.memory.barriers import insert_barriers
from deuteron.compiler.gpu.memory.lifetimes import ByteRange
from deuteron.compiler.gpu.memory.scratch import Allocation, GpuFunction
from deuteron.compiler.gpu.ops import ConvertLayout, VectorLoad, VectorStore
from deuteron.compiler.ir.core import Op
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.memory import Barrier

#: A gated delta rule over two halves of the keys: what is stored, multiplied and read of each step.
DELTA = """
def delta(k, v, w, g, h, out, T, D: tl.constexpr, B: tl.constexpr, N: tl.constexpr):
    t, d, n = tl.arange(0, B), tl.arange(0, D), tl.arange(0, N)
    first = tl.zeros((D, N), tl.float32)
    second = tl.zeros((D, N), tl.float32)
    for i in range(T // B):
        tl.store(h + (i * 2 * D + d[:, None]) * N + n[None, :], first.to(tl.float16))
        tl.store(h + (i * 2 * D + D + d[:, None]) * N + n[None, :], second.to(tl.float16))
        rows = (i * B + t)[:, None] * (2 * D)
        seen = tl.dot(tl.load(w + rows + d[None, :]), first.to(tl.float16))
        seen += tl.dot(tl.load(w + rows + D + d[None, :]), second.to(tl.float16))
        left = tl.load(v + (i * B + t)[:, None] * N + n[None, :]) - seen
        tl.store(out + (i * B + t)[:, None] * N + n[None, :], left)
        last = tl.load(g + i * B + B - 1)
        left *= (last * tl.load(g + i * B + t))[:, None]
        first *= last
        second *= last
        keys = (i * B + t)[None, :] * (2 * D)
        first += tl.dot(tl.load(k + keys + d[:, None]), left.to(tl.float16))
        second += tl.dot(tl.load(k + keys + D + d[:, None]), left.to(tl.float16))
"""
POINTERS = dict.fromkeys(("k", "v", "w", "h"), "*fp16:16") | {"g": "*fp32:16", "out": "*fp32:16", "T": "i32:16"}


#: A sum in a branch, and a tile that is stored the other way round: scratch while a product is under way.
BRANCH = """
def branch(a, b, c, s, t, flag):
    m, n = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    x = tl.load(a + m * 64 + n)
    product = tl.dot(x, tl.load(b + m * 64 + n))
    if flag:
        tl.store(s + tl.arange(0, 64), tl.sum(x.to(tl.float32), 0))
    tl.store(t + n * 64 + m, x.to(tl.float32))
    tl.store(c + m * 64 + n, product)
"""
BRANCH_POINTERS = dict.fromkeys(("a", "b"), "*fp16:16") | dict.fromkeys(("c", "s", "t"), "*fp32:16") | {"flag": "i32"}


def delta(k: Any, v: Any, w: Any, g: Any, factors: Any, D: int, B: int, N: int) -> tuple[Any, Any]:
    """States before each step, and what each step leaves, in float64 but for what the kernel rounds to float16."""
    states, left = [], []
    state = np.zeros((2 * D, N))
    for start in range(0, len(v), B):
        rows = slice(start, start + B)
        states.append(state)
        scales = np.repeat([1.0, factors[start // B]], D)[:, None]
        rest = v[rows] - w[rows].astype(np.float64) @ (state * scales).astype(np.float16)
        left.append(rest)
        scaled = rest * g[rows][-1] * g[rows, None]
        state = state * g[rows][-1] + k[rows].T.astype(np.float64) @ scaled.astype(np.float16)
    return np.concatenate(states), np.concatenate(left)


@pytest.mark.parametrize(
    ("target", "warps", "stages", "D", "N", "scale"),
    [
        ("cuda:80", 4, 3, 64, 32, "second"),
        ("cuda:90a", 4, 1, 64, 32, "second"),
        ("cuda:90a", 4, 2, 64, 32, "second"),
        ("cuda:90a", 4, 2, 64, 32, "(second * tl.load(g + i))"),
        ("cuda:90a", 4, 3, 64, 64, "second"),
        ("cuda:90a", 2, 3, 64, 32, "second"),
        ("cuda:90a", 8, 2, 32, 16, "second"),
    ],
)
def test_a_gated_delta_rule(
    from_text: Callable[..., Any],
    run_function: Callable[..., Any],
    target: str,
    warps: int,
    stages: int,
    D: int,
    N: int,
    scale: str,
) -> None:
    B, T = 64, 192
    text = DELTA.replace("D + d[None, :]), second.to", f"D + d[None, :]), {scale}.to")
    made = from_text(text, POINTERS, {"D": D, "B": B, "N": N}, warps, num_stages=stages)
    assert_nothing_is_written_where_products_read(made.gpu(target))
    rng = np.random.default_rng(D + N)
    k, w = (rng.integers(-1, 2, (T, 2 * D)).astype(np.float16) for _ in range(2))
    v = rng.integers(-2, 3, (T, N)).astype(np.float16)
    g = (0.5 ** rng.integers(0, 3, T)).astype(np.float32) / 16
    h, out = np.full((T // B * 2 * D, N), 77, np.float16), np.full((T, N), 77, np.float32)
    run_function(made.tile(), (1,), [k, v, w, g, h, out, T], warps, target, num_stages=stages)
    factors = np.ones(T // B) if scale == "second" else g
    states, left = delta(k, v, w, g, factors, D, B, N)
    np.testing.assert_allclose(h, states, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(out, left, rtol=2e-3, atol=2e-2)


def test_products_of_a_step_are_begun_together(from_text: Callable[..., Any]) -> None:
    made = from_text(DELTA, POINTERS, {"D": 64, "B": 64, "N": 32}, 4, num_stages=2).gpu()
    (loop,) = (op for op in made.walk() if isinstance(op, For))
    seen = (Wgmma, Await, VectorStore, Barrier)
    ops = [op for op in loop.body.ops if isinstance(op, seen) or _writes_tile(op)]
    letters = {Wgmma: "p", Await: "w", VectorStore: "s", ConvertLayout: "t", Barrier: "b"}
    # Both halves of the state, their products, which are one wait, and the states leave beside them; then what is left,
    # which leaves through the copy engine, and its two products.
    assert "".join(letters[type(op)] for op in ops) == "bttppsswbtppww"
    assert [op.unfinished for op in ops if isinstance(op, ConvertLayout)] == [True, False, False]
    assert not any(op.waits for op in ops if isinstance(op, Wgmma))


def test_threads_meet_before_the_second_of_two_tiles_where_that_one_lies_on_what_is_read(
    from_text: Callable[..., Any],
) -> None:
    made = from_text(DELTA, POINTERS, {"D": 64, "B": 64, "N": 32}, 4, num_stages=2).gpu()
    (loop,) = (op for op in made.walk() if isinstance(op, For))
    loop.body.ops = [op for op in loop.body.ops if not isinstance(op, Barrier)]
    first, second, left = [op for op in loop.body.ops if _writes_tile(op)]
    end = made.allocation.total
    places = {**made.allocation.places, first: ByteRange(end, end + 4096), second: made.allocation.places[left]}
    insert_barriers(made, Allocation(places, end + 4096))
    ops = loop.body.ops
    assert isinstance(ops[ops.index(second) - 1], Barrier)


def test_what_steps_are_scaled_by_comes_a_step_early(from_text: Callable[..., Any]) -> None:
    for stages, carried in ((2, 4), (1, 2)):  # without rings nothing is brought ahead
        made = from_text(DELTA, POINTERS, {"D": 64, "B": 64, "N": 32}, 4, num_stages=stages).gpu()
        (loop,) = (op for op in made.walk() if isinstance(op, For))
        assert len(loop.inits) == carried
        assert any(isinstance(op, VectorLoad) and not op.result.type.rank for op in loop.body.ops)


def test_what_is_waited_for_is_read_when_it_is_needed(from_text: Callable[..., Any]) -> None:
    text = DELTA.replace("tl.load(g + i * B + B - 1)", 'tl.load(g + i * B + B - 1, cache_modifier=".cv")')
    made = from_text(text, POINTERS, {"D": 64, "B": 64, "N": 32}, 4, num_stages=2).gpu()
    (loop,) = (op for op in made.walk() if isinstance(op, For))
    assert len(loop.inits) == 2


def test_a_state_that_is_read_again_is_stored_where_that_is_said(from_text: Callable[..., Any]) -> None:
    text = DELTA.replace("tl.load(k + keys + d[:, None])", "tl.load(h + keys + d[:, None])")
    made = from_text(text, POINTERS, {"D": 64, "B": 64, "N": 32}, 4, num_stages=2).gpu()
    (loop,) = (op for op in made.walk() if isinstance(op, For))
    kinds = [type(op) for op in loop.body.ops if isinstance(op, Wgmma | VectorStore)]
    # Those of the state may not pass loads of it, which come behind the first two products.
    assert kinds[:4] == [Wgmma, Wgmma, VectorStore, VectorStore]
    text = text.replace("seen = tl.dot(tl.load(w + rows + d[None, :])", "seen = tl.dot(tl.load(h + rows + d[None, :])")
    made = from_text(text, POINTERS, {"D": 64, "B": 64, "N": 32}, 4, num_stages=2).gpu()
    (loop,) = (op for op in made.walk() if isinstance(op, For))
    kinds = [type(op) for op in loop.body.ops if isinstance(op, Wgmma | VectorStore)]
    assert kinds[:2] == [VectorStore, VectorStore]


#: A sum that another product is added to, and that is stored as well.
TWICE = """
def twice(a, b, c, first, second, T, N: tl.constexpr):
    m, n = tl.arange(0, 64)[:, None], tl.arange(0, N)[None, :]
    k = tl.arange(0, 64)[None, :]
    for i in range(T):
        x = tl.load(a + i * 64 * 64 + m * 64 + k)
        y = tl.load(b + i * 64 * N + m * N + n)
        one = tl.dot(x, y)
        two = tl.dot(x, tl.load(c + i * 64 * N + m * N + n), one)
        tl.store(second + i * 64 * N + m * N + n, two - one)
        tl.store(first + i * 64 * N + m * N + n, one)
"""


def test_a_sum_that_is_needed_itself_is_waited_for(
    from_text: Callable[..., Any], run_function: Callable[..., Any]
) -> None:
    signature = dict.fromkeys(("a", "b", "c"), "*fp16:16")
    signature |= {"first": "*fp32:16", "second": "*fp32:16", "T": "i32"}
    made = from_text(TWICE, signature, {"N": 32}, num_stages=2)
    products = [op for op in made.gpu().walk() if isinstance(op, Wgmma)]
    assert products[1].acc.op is not products[0]
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-3, 4, (3, 64, columns)).astype(np.float16) for columns in (64, 32, 32))
    first, second = (np.full((3, 64, 32), 77, np.float32) for _ in range(2))
    run_function(made.tile(), (1,), [a, b, c, first, second, 3], num_stages=2)
    np.testing.assert_array_equal(first, a.astype(np.float64) @ b)
    np.testing.assert_array_equal(second, a.astype(np.float64) @ c)


def test_scratch_outside_of_loops_lies_beside_what_a_product_reads(
    from_text: Callable[..., Any], run_function: Callable[..., Any]
) -> None:
    made = from_text(BRANCH, BRANCH_POINTERS)
    assert assert_nothing_is_written_where_products_read(made.gpu()) == 2
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, (64, 64)).astype(np.float16) for _ in range(2))
    c, s, t = np.full((64, 64), 77, np.float32), np.full(64, 77, np.float32), np.full((64, 64), 77, np.float32)
    run_function(made.tile(), (1,), [a, b, c, s, t, 1])
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b)
    np.testing.assert_array_equal(t, a.T)
    np.testing.assert_array_equal(s, a.sum(0))


#: A tile that is stored the other way round beside a product of which the operands take most of shared memory.
WIDE = """
def wide(a, b, c, t, M: tl.constexpr, K: tl.constexpr):
    m, k, n = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    product = tl.dot(x, tl.load(b + k[:, None] * K + n[None, :]))
    tl.store(t + k[None, :] * M + m[:, None], x.to(tl.float32))
    tl.store(c + m[:, None] * K + n[None, :], product)
"""


def test_products_are_waited_for_where_scratch_has_no_room_beside_them(from_text: Callable[..., Any]) -> None:
    pointers = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "t": "*fp32:16"}
    for k, beside in ((128, True), (256, False)):
        made = from_text(WIDE, pointers, {"M": 128, "K": k}, 8).gpu()
        assert bool(assert_nothing_is_written_where_products_read(made)) == beside


#: Scratch between two products that are added up, of which only the second one is waited for.
CHAIN = """
def chain(a, b, c, t, out):
    m, n = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    x, y, z = tl.load(a + m * 64 + n), tl.load(b + m * 64 + n), tl.load(c + m * 64 + n)
    product = tl.dot(x, y)
    tl.store(t + n * 64 + m, x.to(tl.float32))
    product = tl.dot(z, y, product)
    tl.store(out + m * 64 + n, product)
"""


def test_products_that_are_added_up_read_until_the_last_one_is_waited_for(
    from_text: Callable[..., Any], run_function: Callable[..., Any]
) -> None:
    pointers = dict.fromkeys(("a", "b", "c"), "*fp16:16") | dict.fromkeys(("t", "out"), "*fp32:16")
    made = from_text(CHAIN, pointers)
    gpu = made.gpu()
    first, second = (op for op in gpu.walk() if isinstance(op, Wgmma))
    assert added_up(second) == [second, first]
    assert assert_nothing_is_written_where_products_read(gpu) >= 1
    rng = np.random.default_rng(2)
    a, b, c = (rng.integers(-3, 4, (64, 64)).astype(np.float16) for _ in range(3))
    t, out = (np.full((64, 64), 77, np.float32) for _ in range(2))
    run_function(made.tile(), (1,), [a, b, c, t, out])
    np.testing.assert_array_equal(t, a.T)
    np.testing.assert_array_equal(out, (a + c).astype(np.float64) @ b)


#: Sums of instructions of two shapes, which the hardware keeps in no order: 16 and 32 numbers deep.
MIXED = """
def mixed(a, b, c, d, out, K, N: tl.constexpr, B: tl.constexpr):
    m, n, k = tl.arange(0, 64), tl.arange(0, N), tl.arange(0, B)
    total = tl.zeros((64, N), tl.float32)
    for start in range(0, K, B):
        rows, columns = m[:, None] * K + (start + k)[None, :], (start + k)[:, None] + n[None, :] * K
        total = tl.dot(tl.load(a + rows), tl.load(b + columns), total)
        total = tl.dot(tl.load(c + rows), tl.load(d + columns), total)
    tl.store(out + m[:, None] * N + n[None, :], total)
"""


def test_products_of_other_instructions_are_waited_for(from_text: Callable[..., Any]) -> None:
    pointers = {**dict.fromkeys(("a", "b"), "*fp16:16"), "out": "*fp32:16"}
    for c, chained in (("*fp8e4nv:16", False), ("*fp16:16", True)):
        signature = {**pointers, "c": c, "d": c, "K": "i32:16"}
        made = from_text(MIXED, signature, {"N": 64, "B": 64}, num_stages=2).gpu()
        first, second = (op for op in made.walk() if isinstance(op, Wgmma))
        assert (second.acc.op is first) == chained


#: A tile from a ring that is stored as it is, and multiplied, beside another product that has rings of its own.
KEPT = """
def kept(a, b, d, e, copy, c, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    total, other = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
    for start in range(0, K, B):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        tl.store(copy + m[:, None] * K + (start + k)[None, :], x)
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        total = tl.dot(x, y, total)
        z = tl.load(e + (start + k)[:, None] * N + n[None, :])
        other = tl.dot(tl.load(d + m[:, None] * K + (start + k)[None, :]), z, other)
    tl.store(c + m[:, None] * N + n[None, :], total - other)
"""


def test_what_is_stored_of_a_ring_is_read_before_its_slot_is_released(
    from_text: Callable[..., Any], run_function: Callable[..., Any]
) -> None:
    pointers = {**dict.fromkeys(("a", "b", "d", "e"), "*fp16:16"), "copy": "*fp16", "c": "*fp32:16", "K": "i32:16"}
    made = from_text(KEPT, pointers, {"M": 128, "N": 64, "B": 64}, 8)
    gpu = made.gpu()
    loops = [op for op in gpu.walk() if isinstance(op, For) and any(isinstance(o, Wgmma) for o in op.body.ops)]
    (loop,) = loops
    ops = loop.body.ops
    reads = [i for i, op in enumerate(ops) if isinstance(op, ConvertLayout) and op.x.type.shared is not None]
    released = [i for i, op in enumerate(ops) if isinstance(op, Release)]
    assert reads and released and max(reads) < min(released)
    rng = np.random.default_rng(3)
    a, d = (rng.integers(-3, 4, (128, 320)).astype(np.float16) for _ in range(2))
    b, e = (rng.integers(-3, 4, (320, 64)).astype(np.float16) for _ in range(2))
    copy, c = np.full_like(a, 77), np.full((128, 64), 77, np.float32)
    run_function(made.tile(), (1,), [a, b, d, e, copy, c, 320], 8)
    np.testing.assert_array_equal(copy, a)
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b - d.astype(np.float64) @ e)


#: A tile from a ring that is added to memory as it is, and multiplied; ``old`` gets what was there.
ADDED = """
def added(a, b, sums, old, c, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr, READ: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    at = k[:, None] * N + n[None, :]
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, B):
        y = tl.load(b + start * N + at)
        before = tl.atomic_add(sums + at, y, mask=k[:, None] < B - 1, sem="relaxed")
        if READ:
            tl.store(old + start * N + at, before, mask=k[:, None] < B - 1)
        total = tl.dot(tl.load(a + m[:, None] * K + (start + k)[None, :]), y, total, input_precision="{precision}")
    tl.store(c + m[:, None] * N + n[None, :], total)
"""


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize(("kind", "precision"), [("fp32", "ieee"), ("fp32", "tf32"), ("fp16", "tf32")])
def test_what_is_added_to_memory_may_come_from_a_ring(
    from_text: Callable[..., Any], simulated: Callable[..., Any], kind: str, precision: str, read: bool
) -> None:
    dtype = np.float32 if kind == "fp32" else np.float16
    pointers = {**dict.fromkeys(("a", "b", "sums", "old"), f"*{kind}:16"), "c": "*fp32:16", "K": "i32:16"}
    text = ADDED.replace("{precision}", precision)
    made = from_text(text, pointers, {"M": 64, "N": 32, "B": 32, "READ": read}, 4, num_stages=4)
    assert any(isinstance(op, RingBuffer) for op in made.gpu().walk())
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, size).astype(dtype) for size in ((64, 96), (96, 32)))
    sums, old, c = np.zeros((32, 32), dtype), np.full((96, 32), 77, dtype), np.full((64, 32), 77, np.float32)
    simulated(made, (1, 1), [a, b, sums, old, c, 96])
    steps = b.reshape(3, 32, 32).astype(np.float64)
    wanted = steps.sum(axis=0)
    wanted[-1] = 0
    np.testing.assert_array_equal(sums, wanted)
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))
    if read:
        before = np.cumsum(steps, axis=0) - steps
        np.testing.assert_array_equal(old.reshape(3, 32, 32)[:, :-1], before[:, :-1])


def test_operands_come_when_they_are_needed_where_there_is_no_room(from_text: Callable[..., Any]) -> None:
    wide = from_text(DELTA, POINTERS, {"D": 128, "B": 64, "N": 64}, 4, num_stages=3).gpu()
    tiles = [op for op in wide.walk() if _writes_tile(op)]
    assert not any(op.unfinished for op in tiles)
    rings = [op.slots for op in wide.walk() if isinstance(op, RingBuffer)]
    assert max(rings) == 2


def assert_nothing_is_written_where_products_read(made: GpuFunction) -> int:
    """How many operations with a place in shared memory there are beside products in flight; none may overlap what
    these read, other than a ring that the copies of later iterations go to."""
    beside = 0
    for block in made.body.nest():
        flying: list[Wgmma] = []
        for op in block.ops:
            for inner in (op, *(i for b in op.blocks for i in b.walk())):
                place = made.allocation.places.get(inner)
                if place is None or not flying:
                    continue
                beside += 1
                for product in flying:
                    assert not any(place.overlaps(read) for read in _read(made, product)), (inner, product)
            if isinstance(op, Wgmma):
                flying = [] if op.waits else [*flying, op]
            elif isinstance(op, Await):
                done = added_up(op.x.op)
                flying = flying[max(flying.index(product) for product in done) + 1 :]
        assert not flying
    return beside


def _read(made: GpuFunction, product: Wgmma) -> Iterator[ByteRange]:
    for value in (product.a, product.b):
        source = value.op
        while isinstance(source, SharedView | Slot):
            source = source.operands[0].op
        if source is not None and (isinstance(source, RingBuffer) or _writes_tile(source)):
            yield made.allocation.places[source]


def _writes_tile(op: Op) -> bool:
    return isinstance(op, ConvertLayout) and op.to.shared is not None
