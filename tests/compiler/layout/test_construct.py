"""Blocked layouts against their definition by division and remainder."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.compiler.layout import (
    LayoutError,
    LinearLayout,
    blocked,
    coalesced,
    coalesced_vectors,
    contiguous_registers,
)

quick = settings(deadline=None, max_examples=40)


def unravel(index, sizes, order):
    """Multi-index of ``index`` in a box whose ``order[0]`` runs fastest."""
    result = [0] * len(sizes)
    for axis in order:
        result[axis] = index % sizes[axis]
        index //= sizes[axis]
    return result


powers = st.sampled_from([1, 2, 4])


@st.composite
def blocked_arguments(draw):
    rank = draw(st.integers(1, 3))
    order = draw(st.permutations(range(rank)))

    def split(bits):
        sizes = [1] * rank
        for _ in range(bits):
            sizes[draw(st.integers(0, rank - 1))] *= 2
        return tuple(sizes)

    shape = tuple(draw(st.sampled_from([1, 2, 4, 8, 16, 32])) for _ in range(rank))
    return shape, split(draw(st.integers(0, 3))), split(5), split(draw(st.integers(0, 2))), order


@quick
@given(blocked_arguments())
def test_blocked_is_the_box_of_boxes(arguments):
    shape, per_thread, threads, warps, order = arguments
    layout = blocked(shape, per_thread, threads, warps, order)
    assert layout.is_surjective
    wave = [a * b * c for a, b, c in zip(per_thread, threads, warps, strict=True)]
    box = [min(a, n) for a, n in zip(per_thread, shape, strict=True)]
    repeats = [max(1, n // w) for n, w in zip(shape, wave, strict=True)]
    assert layout.registers == math.prod(box) * math.prod(repeats)
    for register in range(layout.registers):
        inner = unravel(register % math.prod(box), box, order)
        repeat = unravel(register // math.prod(box), repeats, order)
        for lane in range(32):
            thread = unravel(lane, threads, order)
            for warp in range(math.prod(warps)):
                group = unravel(warp, warps, order)
                expected = tuple(
                    (r * w + (g * t_count + t) * p + i) % n
                    for r, w, g, t_count, t, p, i, n in zip(
                        repeat, wave, group, threads, thread, per_thread, inner, shape, strict=True
                    )
                )
                assert layout.apply(register, lane, warp) == expected


def test_coalesced_rows():
    layout = coalesced((32, 64), warps=4, vector=8)
    assert layout.register[:3] == ((0, 1), (0, 2), (0, 4))
    assert layout.lane == ((0, 8), (0, 16), (0, 32), (1, 0), (2, 0))
    assert layout.warp == ((4, 0), (8, 0))
    assert contiguous_registers(layout) == 8


def test_coalesced_columns():
    layout = coalesced((64, 32), warps=2, vector=4, order=(0, 1))
    assert contiguous_registers(layout, axis=0) == 4
    assert contiguous_registers(layout, axis=1) == 1
    assert layout.lane[0] == (4, 0)


def test_coalesced_lowers_the_vector_rather_than_copy():
    layout = coalesced((256,), warps=4, vector=8)
    assert contiguous_registers(layout) == 2
    assert layout.is_injective
    assert coalesced((64,), warps=4, vector=8).free_bits("warp") == 0b10
    assert coalesced((64,), warps=4, vector=8).registers == 1


def test_whole_vectors_leave_threads_with_copies():
    layout = coalesced_vectors((16, 16), 4, 4, (0, 1))
    assert contiguous_registers(layout, axis=0) == 4
    assert layout.lane == ((4, 0), (8, 0), (0, 1), (0, 2), (0, 4))
    assert layout.warp == ((0, 8), (0, 0))
    assert coalesced_vectors((32, 64), 4, 8, (1, 0)) == coalesced((32, 64), 4, 8, (1, 0))
    with pytest.raises(LayoutError, match="8 elements along an axis of 4"):
        coalesced_vectors((64, 4), 4, 8, (1, 0))


def test_contiguous_registers_need_aligned_threads():
    shifted = LinearLayout.from_bases((1, 8), register=[(0, 1), (0, 2)], lane=[(0, 6)])
    assert contiguous_registers(shifted) == 2
    assert contiguous_registers(LinearLayout.from_bases(())) == 1


def test_wrong_arguments_are_refused():
    with pytest.raises(LayoutError, match="rank 2"):
        blocked((4, 4), (1,), (8, 4), (1, 1))
    with pytest.raises(LayoutError, match="power of two"):
        blocked((4, 4), (1, 3), (8, 4), (1, 1))
    with pytest.raises(LayoutError, match="power of two"):
        coalesced((4, 4), warps=3)
