"""Shape operations: the element in a register afterwards is the one that the operation puts there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.compiler.layout import (
    LayoutError,
    LinearLayout,
    blocked,
    broadcast_layout,
    coalesced,
    expand_dims_layout,
    join_layout,
    permute_layout,
    remove_register_broadcast,
    reshape_layout,
    share_out,
    slice_layout,
    split_layout,
    splittable_layout,
    unbroadcast_layout,
    unique_registers,
)

quick = settings(deadline=None, max_examples=40)


def places(layout):
    """Every (register, lane, warp)."""
    return [
        (register, lane, warp)
        for register in range(layout.registers)
        for lane in range(layout.lanes)
        for warp in range(layout.warps)
    ]


def test_permute_moves_coordinates(layouts):
    @quick
    @given(layouts(), st.data())
    def law(layout, data):
        order = tuple(data.draw(st.permutations(range(layout.rank))))
        moved = permute_layout(layout, order)
        for place in places(layout)[::7]:
            coordinates = layout.apply(*place)
            assert moved.apply(*place) == tuple(coordinates[axis] for axis in order)

    law()


def test_reshape_keeps_the_linear_index(layouts):
    @quick
    @given(layouts(), st.data())
    def law(layout, data):
        shape = data.draw(layouts(shape=None).map(lambda other: other.shape))
        if LinearLayout.from_bases(shape).size != layout.size:
            with pytest.raises(LayoutError):
                reshape_layout(layout, shape)
            shape = (layout.size,)
        moved = reshape_layout(layout, shape)
        assert moved.shape == shape
        assert [moved.apply_flat(*p) for p in places(layout)[::7]] == [
            layout.apply_flat(*p) for p in places(layout)[::7]
        ]

    law()


def test_expand_dims_then_slice_is_identity(layouts):
    @quick
    @given(layouts(), st.data())
    def law(layout, data):
        axis = data.draw(st.integers(-layout.rank - 1, layout.rank))
        wide = expand_dims_layout(layout, axis)
        position = axis % (layout.rank + 1)
        assert wide.shape == (*layout.shape[:position], 1, *layout.shape[position:])
        assert slice_layout(wide, position) == layout

    law()


def test_slice_forgets_one_coordinate(layouts):
    @quick
    @given(layouts(), st.data())
    def law(layout, data):
        axis = data.draw(st.integers(0, layout.rank - 1))
        result = slice_layout(layout, axis)
        for place in places(layout)[::7]:
            coordinates = layout.apply(*place)
            assert result.apply(*place) == coordinates[:axis] + coordinates[axis + 1 :]
        assert result.is_surjective

    law()


def test_slicing_everything_gives_a_scalar():
    layout = slice_layout(coalesced((128,), 4), 0)
    assert layout.shape == ()
    assert remove_register_broadcast(layout).registers == 1


def test_removing_copies_keeps_the_named_registers(layouts):
    @quick
    @given(layouts())
    def law(layout):
        lean = remove_register_broadcast(layout)
        kept = unique_registers(layout)
        assert len(kept) == lean.registers
        assert len(set(lean.register_coordinates())) == lean.registers
        assert set(lean.register_coordinates()) == set(layout.register_coordinates())
        for new, old in enumerate(kept):
            assert lean.apply(new, 3, 0) == layout.apply(old, 3, 0)

    law()


def test_sharing_out_leaves_threads_less_of_what_they_hold(layouts):
    @quick
    @given(layouts(), st.integers(0, 2))
    def law(layout, kept):
        shared = share_out(layout, kept)
        lean = remove_register_broadcast(layout)
        assert shared.flat_register[:kept] == lean.flat_register[:kept]
        held = {}
        for register, lane, warp in places(lean):
            held.setdefault((lane, warp), set()).add(lean.apply(register, lane, warp))
        found = [(shared.apply(*place), place[1:]) for place in places(shared)]
        assert all(element in held[thread] for element, thread in found)
        assert {element for element, _ in found} == set().union(*held.values())
        copies = [basis for basis in (*layout.flat_lane, *layout.flat_warp) if not basis]
        assert shared.registers == max(lean.registers >> len(copies), min(1 << kept, lean.registers))

    law()


def test_lanes_take_neighbours_before_warps_do():
    layout = LinearLayout((64,), (1, 32, 16, 4), (0, 2, 8, 0, 0), (0,))
    assert share_out(layout, 1) == LinearLayout((64,), (1,), (4, 2, 8, 16, 32), (0,))
    assert share_out(layout, 0) == LinearLayout((64,), (), (1, 2, 8, 4, 16), (32,))


def test_broadcast_repeats_registers():
    layout = expand_dims_layout(coalesced((64,), 2, 1), 1)
    wide = broadcast_layout(layout, (64, 8))
    assert wide.shape == (64, 8)
    assert wide.registers == layout.registers * 8
    seen = set()
    for register, lane, warp in places(wide):
        row, column = wide.apply(register, lane, warp)
        assert (row, 0) == layout.apply(register % layout.registers, lane, warp)
        seen.add((row, column))
    assert len(seen) == 64 * 8


def test_unbroadcast_names_the_operand_of_every_register(layouts):
    @quick
    @given(layouts(), st.data())
    def law(layout, data):
        shape = tuple(data.draw(st.sampled_from([1, size])) for size in layout.shape)
        operand = unbroadcast_layout(layout, shape)
        for place in places(layout)[::7]:
            expected = [0 if n == 1 else c for n, c in zip(shape, layout.apply(*place), strict=True)]
            assert list(operand.apply(*place)) == expected
        if layout.rank == 1 and shape == (1,):
            assert broadcast_layout(operand, layout.shape).is_surjective

    law()


def test_join_interleaves_and_split_undoes_it(layouts):
    @quick
    @given(layouts())
    def law(layout):
        joined = join_layout(layout)
        assert joined.shape == (*layout.shape, 2)
        for register, lane, warp in places(layout)[::7]:
            for half in (0, 1):
                expected = (*layout.apply(register, lane, warp), half)
                assert joined.apply(2 * register + half, lane, warp) == expected
        assert split_layout(joined) == layout
        assert splittable_layout(joined) == join_layout(remove_register_broadcast(layout))

    law()


def test_split_needs_both_halves_in_one_thread():
    layout = blocked((64, 2), (1, 1), (16, 2), (1, 1))
    with pytest.raises(LayoutError, match="lowest register"):
        split_layout(layout)
    assert split_layout(splittable_layout(layout)).shape == (64,)
    with pytest.raises(LayoutError, match="size 2"):
        split_layout(blocked((64, 4), (1, 4), (32, 1), (1, 1)))


def test_wrong_shapes_and_axes_are_refused():
    layout = coalesced((32, 32), 4)
    with pytest.raises(LayoutError, match="permutation"):
        permute_layout(layout, (0, 0))
    with pytest.raises(LayoutError, match="axis 2"):
        slice_layout(layout, 2)
    with pytest.raises(LayoutError, match="broadcast"):
        broadcast_layout(layout, (32, 64))
    with pytest.raises(LayoutError, match="broadcast"):
        unbroadcast_layout(layout, (16, 32))
