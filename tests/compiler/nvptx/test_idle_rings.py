"""Results that pass through the memory of rings, on the simulator: it sees whoever still reads or fills them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Await, Put, RingBuffer, Roles, Wgmma
from deuteron.compiler.gpu.memory.scratch import GpuFunction
from deuteron.compiler.gpu.ops import ConvertLayout
from deuteron.compiler.tile.memory import Barrier

TARGETS = ("cuda:80", "cuda:90a", "cuda:120")
#: Half of a result is as large as a whole slot of ``a``.
TALL = """
def tall(a, b, c, K, s):
    m, r = tl.arange(0, 128), tl.arange(0, 64)
    acc = tl.zeros((128, 64), tl.float32)
    for start in range(0, K, 32):
        k = start + tl.arange(0, 32)
        acc = tl.dot(tl.load(a + m[:, None] * s + k[None, :]), tl.load(b + k[:, None] * s + r[None, :]), acc)
    tl.store(c + m[:, None] * s + r[None, :], acc.to(tl.float16))
"""
#: ``d`` is not aligned for the copy engine, which may still store ``c`` when threads exchange what they store there.
STORED_TWICE = """
def stored_twice(a, b, c, d, K, s):
    r = tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, 64):
        k = start + tl.arange(0, 64)
        acc = tl.dot(tl.load(a + r[:, None] * s + k[None, :]), tl.load(b + k[:, None] * s + r[None, :]), acc)
    tl.store(c + r[:, None] * s + r[None, :], acc.to(tl.float16))
    tl.store(d + r[:, None] * s + r[None, :], (acc + 1).to(tl.float16))
"""
#: The load between product and sum needs a barrier, which comes while the product still reads the ring.
BARRIER_UNDER_A_PRODUCT = """
def barrier_under_a_product(a, b, x, d, K, s):
    m, r = tl.arange(0, 128), tl.arange(0, 64)
    acc = tl.zeros((128, 64), tl.float32)
    for start in range(0, K, 64):
        k = start + tl.arange(0, 64)
        tl.store(x + m, (m + start).to(tl.float32))
        product = tl.dot(tl.load(a + m[:, None] * s + k[None, :]), tl.load(b + k[:, None] * s + r[None, :]))
        acc += product * tl.load(x + 5)
    tl.store(d + m[:, None] * s + r[None, :], acc)
"""
SIZES = {"K": "i32:16", "s": "i32:16"}


def on_rings(function: GpuFunction) -> bool:
    """Whether anything shares the memory of a ring."""
    places = function.allocation.places
    rings = [place for op, place in places.items() if isinstance(op, RingBuffer)]
    return any(place.overlaps(ring) for op, place in places.items() for ring in rings if place != ring)


def operands(depth: int, stride: int = 128) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A (64 rows), B (``depth`` rows) and their product in f64."""
    rng = np.random.default_rng(depth)
    a = rng.integers(-3, 4, (64, stride)).astype(np.float16)
    b = rng.integers(-3, 4, (max(depth, 1), stride)).astype(np.float16)
    return a, b, a[:, :depth].astype(np.float64) @ b[:depth, :64].astype(np.float64)


@pytest.mark.parametrize(("first", "second", "depth"), [(64, 32, 0), (64, 64, 64), (64, 32, 128)])
@pytest.mark.parametrize("target", TARGETS)
def test_products_one_after_the_other(
    from_text, run_function, ring_kernel, target: str, first: int, second: int, depth: int
) -> None:
    """Without iterations nothing is fetched, with one fewer slots are filled than there are."""
    signature = {**dict.fromkeys(("a", "b", "c", "d"), "*fp16:16"), "e": "*fp32:16", **SIZES}
    made = from_text(ring_kernel("two_products"), signature, {"FIRST": first, "SECOND": second})
    function = made.gpu(target)
    assert on_rings(function)
    assert any(isinstance(op, Roles) for op in function.walk()) == (target == "cuda:90a")
    a, b, wanted = operands(depth)
    c, d, e = np.full((64, 128), 77, np.float16), np.full((64, 128), 77, np.float16), np.full(64, 77, np.float32)
    run_function(made.tile(), (1,), [a, b, c, d, e, depth, 128], 4, target)
    for got in (c, d):
        np.testing.assert_array_equal(got[:, :64], wanted)
        assert (got[:, 64:] == 77).all()
    np.testing.assert_array_equal(e, 2 * wanted.sum(0))


def test_groups_of_warps_that_store_alone_wait_for_the_others_once(from_text, simulated) -> None:
    """The rows of one group lie on what the other one still reads."""
    signature = {**dict.fromkeys(("a", "b", "c"), "*fp16:16"), **SIZES}
    made = from_text(TALL, signature, warps=8, persistent=False)
    put = next(op for op in made.gpu().walk() if isinstance(op, Put))
    assert on_rings(made.gpu()) and put.rows < put.place.shape[0]
    a, b, _ = operands(32)
    a, c = np.concatenate([a, -a]), np.full((128, 128), 77, np.float16)
    simulated(made, (1,), [a, b, c, 32, 128])
    np.testing.assert_array_equal(c[:, :64], a[:, :32].astype(np.float64) @ b[:, :64])


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_copy_engine_still_stores_is_no_scratch(from_text, run_function, target: str) -> None:
    signature = {**dict.fromkeys(("a", "b", "c"), "*fp16:16"), "d": "*fp16", **SIZES}
    made = from_text(STORED_TWICE, signature)
    function = made.gpu(target)
    places = function.allocation.places
    put = [place for op, place in places.items() if isinstance(op, Put)]
    scratch = [place for op, place in places.items() if isinstance(op, ConvertLayout)]
    assert on_rings(function) and scratch and len(put) == (target != "cuda:80")
    assert not any(put[0].overlaps(place) for place in scratch if put)
    a, b, wanted = operands(128)
    c, d = np.full((64, 128), 77, np.float16), np.full((64, 128), 77, np.float16)
    run_function(made.tile(), (1,), [a, b, c, d, 128, 128], 4, target)
    np.testing.assert_array_equal(c[:, :64], wanted)
    np.testing.assert_array_equal(d[:, :64], wanted + 1)


@pytest.mark.parametrize("target", TARGETS)
def test_products_that_come_round(from_text, run_function, ring_kernel, target: str) -> None:
    """A ring is filled again right after its loop."""
    signature = {**dict.fromkeys(("a", "b", "c"), "*fp16:16"), "d": "*fp32:16", **SIZES, "n": "i32"}
    made = from_text(ring_kernel("in_a_loop"), signature)
    a, b, wanted = operands(96)
    c, d = np.full((192, 128), 77, np.float16), np.full((3, 64), 77, np.float32)
    run_function(made.tile(), (1,), [a, b, c, d, 96, 128, 3], 4, target)
    np.testing.assert_array_equal(c[:, :64], np.tile(wanted, (3, 1)))
    np.testing.assert_array_equal(d, np.tile(wanted.sum(0), (3, 1)))


def test_a_barrier_does_not_end_what_a_product_in_flight_reads(from_text, simulated) -> None:
    signature = {**dict.fromkeys(("a", "b"), "*fp16:16"), "x": "*fp32:16", "d": "*fp32", **SIZES}
    made = from_text(BARRIER_UNDER_A_PRODUCT, signature, warps=8, persistent=False)
    function = made.gpu()
    kinds = (type(op) for op in function.walk() if isinstance(op, Wgmma | Barrier | Await))
    order = [kind for kind, _ in itertools.groupby(kinds)]  # the store beside the product has a barrier as well
    assert on_rings(function) and [Wgmma, Barrier, Await] in [order[i : i + 3] for i in range(len(order))]
    a, b, _ = operands(128)
    a, d = np.concatenate([a, -a]), np.full((128, 128), 77, np.float32)
    simulated(made, (1,), [a, b, np.zeros(128, np.float32), d, 128, 128])
    parts = [a[:, k : k + 64].astype(np.float64) @ b[k : k + 64, :64] for k in (0, 64)]
    np.testing.assert_array_equal(d[:, :64], 5 * parts[0] + 69 * parts[1])
