"""Reductions whose results several warps bring together, in each of the ways there are."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.gpu.layouts.reduction import ReductionPlan, plan_reduction
from deuteron.compiler.gpu.layouts.warp_exchange import _candidates, exchange_bytes, plan_exchange
from deuteron.compiler.gpu.memory import scratch
from deuteron.compiler.layout import coalesced
from deuteron.compiler.layout.access import wavefronts
from deuteron.compiler.targets.simt import reduction_warps


@triton.jit
def add_up(x, out, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    rows, columns = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    total = tl.sum(tl.load(x + rows * C + columns), AXIS)
    tl.store(out + tl.arange(0, C if AXIS == 0 else R), total)


@triton.jit
def largest(x, values, places, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    rows, columns = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    value, place = tl.max(tl.load(x + rows * C + columns), AXIS, return_indices=True)
    at = tl.arange(0, C if AXIS == 0 else R)
    tl.store(values + at, value)
    tl.store(places + at, place)


@triton.jit
def spread_again(x, out, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    """What each thread needs of the result is what it had of the tile, in turns that use the same memory."""
    rows, columns = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    tile = tl.load(x + rows * C + columns)
    for _turn in range(3):
        tile = tile + tl.expand_dims(tl.max(tile, AXIS), AXIS)
    tl.store(out + rows * C + columns, tile)


SHAPES = [(128, 64), (64, 8), (256, 4), (8, 256), (2, 512), (1, 256), (512, 1), (16, 512)]
CHOICES = [None, 0, 1, 2, 3]


@pytest.fixture(params=CHOICES, ids=lambda choice: "chosen" if choice is None else f"way {choice}")
def choice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to exchange partials, whether it pays or not."""
    if request.param is not None:

        def planned(plan: ReductionPlan, element_bytes: int):
            ways = list(_candidates(plan, element_bytes))
            return ways[request.param % len(ways)]

        monkeypatch.setattr(scratch, "plan_exchange", planned)
        monkeypatch.setattr(reduction_warps, "plan_exchange", planned)


@pytest.mark.parametrize("launch", ["ptx", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("warps", [2, 4, 16, 32])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums(launch, rng, choice, shape: tuple[int, int], axis: int, warps: int) -> None:
    x = rng.integers(-50, 50, shape).astype(np.float32)
    out = np.full(shape[1 - axis], np.nan, np.float32)
    made = launch(add_up, (1,), x, out, R=shape[0], C=shape[1], AXIS=axis, num_warps=warps)[1]
    np.testing.assert_array_equal(made, x.astype(np.float64).sum(axis))


@pytest.mark.parametrize("launch", ["ptx", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(128, 64), (8, 256), (64, 8)], ids=str)
def test_elements_of_two_sizes(launch, rng, choice, shape: tuple[int, int], dtype: type) -> None:
    x = rng.integers(0, 100, shape).astype(dtype)
    for axis in (0, 1):
        count = shape[1 - axis]
        values, places = np.zeros(count, dtype), np.full(count, -1, np.int32)
        made = launch(largest, (1,), x, values, places, R=shape[0], C=shape[1], AXIS=axis, num_warps=8)
        np.testing.assert_array_equal(made[1], x.max(axis))
        np.testing.assert_array_equal(made[2], x.argmax(axis))


@pytest.mark.parametrize("launch", ["ptx", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("warps", [4, 16])
def test_turns_that_use_the_same_memory(launch, rng, choice, axis: int, warps: int) -> None:
    x = rng.integers(-50, 50, (128, 64)).astype(np.int32)
    made = launch(spread_again, (1,), x, np.zeros_like(x), R=128, C=64, AXIS=axis, num_warps=warps)[1]
    for _ in range(3):
        x = x + x.max(axis, keepdims=True)
    np.testing.assert_array_equal(made, x)


def test_sixteen_warps_share_results_out_and_four_do_not() -> None:
    """Of 64 columns that each warp has: 16 partials of each are 16 reads of a vector for every thread."""
    of = {warps: plan_exchange(plan_reduction(coalesced((128, 64), warps, 4, (1, 0)), 0), 4) for warps in (2, 16)}
    assert of[16].shared_out and not of[2].shared_out
    for lane, _ in (of[16].read(), of[16].told()):
        assert wavefronts([slot * 4 for slot in lane], 4) == 1  # lanes meet in no bank
    assert of[16].cycles(4) * 8 < max(way.cycles(4) for way in _candidates(of[16].plan, 4))


def test_many_results_take_no_more_shared_memory_than_partials() -> None:
    """Of 1,024 columns of i64 and their places, which eight warps have: an SM of sm_120 has 99 KiB."""
    exchange = plan_exchange(plan_reduction(coalesced((8, 1024), 32, 8, (1, 0)), 0), 8)
    assert exchange.shared_out
    assert sum(sum(exchange_bytes(exchange, size)) for size in (8, 4)) == 8 * 1024 * (8 + 4)
