"""Numbers about accesses against counts in plain Python, over random addresses, masks, shapes and strides."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.profiler.accesses.analysis import bank_conflicts, reuse, traffic
from deuteron.profiler.accesses.encode import affine_strides, encoded, runs
from deuteron.profiler.accesses.record import (
    AccessKind,
    RecordedAccess,
    RecordedArray,
    RecordedLaunch,
    RecordedOperation,
)

sizes = st.sampled_from([1, 2, 4, 8])
shapes = st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=3).map(tuple)
seeds = st.integers(0, 2**32 - 1)


@given(seeds, sizes, st.integers(1, 200))
@settings(max_examples=60)
def test_sectors_and_lines_are_those_of_each_byte(seed: int, size: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    addresses = rng.integers(10_000, 10_000 + int(rng.integers(1, 5_000)), count).astype(np.uint64)
    groups = np.sort(rng.integers(0, 5, count))
    found = traffic(addresses, groups, size)
    touched = {
        unit: {
            (int(group), (int(address) + byte) // unit)
            for group, address in zip(groups, addresses, strict=True)
            for byte in range(size)
        }
        for unit in (32, 128)
    }
    assert (found.groups, found.asked) == (len(set(groups.tolist())), count * size)
    assert (found.sectors, found.lines) == (len(touched[32]), len(touched[128]))
    assert found.moved == 32 * len(touched[32])


def worst_bank(places: list[list[int]], size: int) -> int:
    """Of warps, given as the offsets of their elements in shared memory: the most words of one bank."""
    worst = 0
    for warp in places:
        words = {(place + byte) // 4 for place in warp for byte in range(size)}
        worst = max(worst, *Counter(word % 32 for word in words).values(), 0)
    return worst


@given(seeds, sizes, shapes, st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=60)
def test_bank_conflicts_are_those_of_each_word(seed: int, size: int, shape: tuple[int, ...], off: float) -> None:
    active = np.random.default_rng(seed).random(prod(shape)) >= off
    tile = np.arange(prod(shape)).reshape(shape)
    orders = [tile.reshape(-1), (np.swapaxes(tile, -1, -2) if len(shape) > 1 else tile).reshape(-1)]
    wanted = [
        worst_bank(
            [[int(e) * size for e in order[i : i + 32] if active[e]] for i in range(0, len(order), 32)],
            size,
        )
        for order in orders
    ]
    assert list(bank_conflicts(shape, size, active)) == wanted


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), max_size=80))
def test_reuse_is_counted_by_element_and_program(touched: list[tuple[int, int]]) -> None:
    times, programs = Counter(touched), defaultdict(set)
    for element, program in touched:
        programs[element].add(program)
    found = reuse(np.array([e for e, _ in touched]), np.array([p for _, p in touched]))
    assert found.distinct == len(programs)
    assert found.again == sum(count > 1 for count in times.values())
    assert found.several == sum(len(who) > 1 for who in programs.values())


@given(st.data(), shapes, sizes)
@settings(max_examples=60)
def test_positions_in_views_of_any_strides(data: st.DataObject, shape: tuple[int, ...], size: int) -> None:
    base = np.zeros([2 * side for side in shape], f"V{size}")
    order = data.draw(st.permutations(range(len(shape))))
    steps = [data.draw(st.sampled_from([1, 2, -1])) for _ in shape]
    view = base[tuple(slice(None, None, step) for step in steps)].transpose(order)
    low, high = np.lib.array_utils.byte_bounds(view)
    array = RecordedArray("x", "v", size, view.shape, view.strides, low, high - low)
    first = view.__array_interface__["data"][0]
    for position, index in enumerate(np.ndindex(view.shape)):
        at = first + sum(i * stride for i, stride in zip(index, view.strides, strict=True))
        inside = np.array([at, at + size - 1], np.uint64)
        assert array.positions(inside).tolist() == [position, position]
    assert array.positions(np.array([low - 1, high, high + 99, 0], np.uint64)).tolist() == [-1] * 4


def decoded(written: list[object], shape: tuple[int, ...]) -> tuple[list[int], list[bool], list[bool]]:
    """What ``encoded`` wrote, read as the page does: distances, active, outside."""
    _, _, _, base, strides, steps, mask, outside = written
    count = prod(shape)

    def flags(lengths: list[int]) -> list[bool]:
        return [bool(i % 2) for i, length in enumerate(lengths) for _ in range(length)]

    if strides == 0:
        distances = [base]
        for step, times in zip(steps[::2], steps[1::2], strict=True):
            distances += [distances[-1] + step * (n + 1) for n in range(times)]
    else:
        distances = [base + sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(shape)]
    if mask == 0:
        active = [True] * count
    elif isinstance(mask[0], list):
        lines = [flags(lengths) for lengths in mask]
        active = [all(line[i] for line, i in zip(lines, index, strict=True)) for index in np.ndindex(shape)]
    else:
        active = flags(mask)
    return distances, active, [False] * count if outside == 0 else flags(outside)


@given(seeds, shapes, st.booleans(), st.sampled_from(["all", "box", "any", "none"]))
@settings(max_examples=80)
def test_accesses_survive_being_written(seed: int, shape: tuple[int, ...], affine: bool, masks: str) -> None:
    rng, count = np.random.default_rng(seed), prod(shape)
    strides = rng.integers(-64, 64, len(shape))
    grid = np.indices(shape).reshape(len(shape), -1)
    distances = (grid * strides[:, None]).sum(0) if affine else rng.integers(-500, 500, count)
    start = 1 << 40
    edges = [int(rng.integers(0, side + 1)) for side in shape]
    active = {
        "all": np.ones(count, bool),
        "none": np.zeros(count, bool),
        "any": rng.random(count) < 0.5,
        "box": np.all([axis < edge for axis, edge in zip(grid, edges, strict=True)], axis=0),
    }[masks]
    outside = active & (rng.random(count) < 0.1)
    launch = RecordedLaunch(
        "k", 1, (1, 1, 1), (RecordedArray("x", "f32", 4, (8,), (4,), start, 32),),
        operations=[RecordedOperation(AccessKind.LOAD, None, "", shape, "f32", 4)],
    )  # fmt: skip
    access = RecordedAccess(0, 0, 0, (distances + start).astype(np.uint64), active, outside)
    assert decoded(encoded(launch, access), shape) == (distances.tolist(), active.tolist(), outside.tolist())
    if affine:
        assert affine_strides(distances, shape) is not None


@pytest.mark.parametrize(
    ("flags", "lengths"), [([], [0]), ([0, 0], [2]), ([1, 1, 0], [0, 2, 1]), ([0, 1, 1, 0], [1, 2, 1])]
)
def test_runs_begin_with_what_is_off(flags: list[int], lengths: list[int]) -> None:
    assert runs(np.array(flags, bool)) == lengths
