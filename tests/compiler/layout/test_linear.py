"""Laws of the map itself: application, inverse, composition, quotient, text."""

import pickle

import pytest
from hypothesis import given, settings

from deuteron.compiler.layout import LayoutError, LinearLayout, blocked

quick = settings(deadline=None, max_examples=40)


def test_apply_is_the_xor_of_bases():
    layout = LinearLayout.from_bases((4, 8), register=[(0, 1), (1, 1)], lane=[(0, 2), (2, 0)], warp=[(0, 4)])
    assert layout.apply(register=3, lane=1, warp=1) == (1, 0 ^ 2 ^ 4)
    assert layout.register_coordinates() == ((0, 0), (0, 1), (1, 1), (1, 0))
    assert (layout.registers, layout.lanes, layout.warps, layout.blocks) == (4, 4, 2, 1)
    assert layout.is_injective
    assert layout.is_surjective


def test_print_and_parse(layouts):
    @quick
    @given(layouts())
    def round_trip(layout):
        text = str(layout)
        assert LinearLayout.parse(text) == layout
        assert not set(text) & set(" \t\"'")
        assert pickle.loads(pickle.dumps(layout)) == layout

    round_trip()


def test_text_of_a_scalar_tile():
    layout = LinearLayout.from_bases((), lane=[()] * 5, warp=[()])
    assert str(layout) == "#ll[;l=_,_,_,_,_;w=_]"
    assert LinearLayout.parse(str(layout)) == layout


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#ll[4x4",
        "#ll[4x4;l=0.1;r=1.0]",
        "#ll[4x4;r=0.9]",
        "#ll[3;r=1]",
        "#ll[4;r=1.1]",
        "#ll[4;r=]",
    ],
)
def test_malformed_text_is_refused(text):
    with pytest.raises(LayoutError):
        LinearLayout.parse(text)


def test_inverse_finds_a_place_of_every_element(layouts):
    @quick
    @given(layouts())
    def law(layout):
        inverse = layout.inverse()
        for flat in range(layout.size):
            place = layout.place(inverse(flat))
            assert layout.apply_flat(*place) == flat
            assert not place.register & layout.free_bits("register")
            assert not place.lane & layout.free_bits("lane")
            assert not place.warp & layout.free_bits("warp")

    law()


def test_without_free_bits_every_element_is_held_once(layouts):
    @quick
    @given(layouts())
    def law(layout):
        masks = [layout.free_bits(name) for name in ("register", "lane", "warp")]
        held = [
            layout.apply_flat(register, lane, warp)
            for register in range(layout.registers)
            if not register & masks[0]
            for lane in range(layout.lanes)
            if not lane & masks[1]
            for warp in range(layout.warps)
            if not warp & masks[2]
        ]
        assert sorted(held) == list(range(layout.size))

    law()


def test_left_divide_undoes_product(layouts):
    @quick
    @given(layouts(), layouts())
    def law(tile, outer):
        if tile.rank != outer.rank:
            with pytest.raises(LayoutError):
                tile.product(outer)
            return
        whole = tile.product(outer)
        assert whole.left_divide(tile) == outer
        assert tile.divides(whole)

    law()


def test_left_divide_refuses_a_different_tile():
    whole = blocked((16, 16), (1, 4), (8, 4), (1, 1))
    tile = LinearLayout.from_bases((2, 1), register=[(1, 0)])
    assert whole.left_divide(tile) is None


def test_invalid_shapes_and_bases_are_refused():
    with pytest.raises(LayoutError, match="power of two"):
        LinearLayout.from_bases((3, 4))
    with pytest.raises(LayoutError, match="outside"):
        LinearLayout.from_bases((4, 4), register=[(4, 0)])
    with pytest.raises(LayoutError, match="no thread holds"):
        LinearLayout.from_bases((4,), register=[(1,)]).locate((2,))
