"""The table of views: what it says in one direction it undoes in the other."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.layouts.views import VIEWS, is_view, operand_layout, result_layout
from deuteron.compiler.ir import Value
from deuteron.compiler.ir.types import F32, Tile
from deuteron.compiler.layout import LayoutError, blocked, splittable_layout
from deuteron.compiler.tile.elementwise import Neg
from deuteron.compiler.tile.shape import Broadcast, ExpandDims, Join, Permute, Reshape, Split

SHAPE = (16, 8, 2)


def _value(shape: tuple[int, ...] = SHAPE) -> Value:
    return Value(Tile(F32, shape))


def _layout():
    return blocked(SHAPE, (1, 2, 2), (8, 4, 1), (2, 1, 1), (2, 1, 0))


@pytest.mark.parametrize(
    "op",
    [
        ExpandDims(_value(), 1),
        Permute(_value(), (2, 0, 1)),
        Reshape(_value(), (4, 64)),
        Join(_value(), _value()),
        Split(_value()),
    ],
    ids=lambda op: op.mnemonic,
)
def test_the_operand_layout_of_a_result_layout_is_where_it_began(op):
    operand = splittable_layout(_layout())
    result = result_layout(op, operand)
    assert is_view(op)
    assert result.shape == op.results[0].type.shape
    assert operand_layout(op, result) == operand


def test_a_permutation_that_is_not_its_own_inverse():
    op = Permute(_value(), (2, 0, 1))
    moved = result_layout(op, _layout())
    assert [basis[1] for basis in moved.lane] == [basis[0] for basis in _layout().lane]


def test_the_result_decides_the_layout_of_a_broadcast_operand():
    op = Broadcast(_value((16, 1, 2)), SHAPE)
    operand = operand_layout(op, _layout())
    assert operand.shape == (16, 1, 2)
    assert all(basis[1] == 0 for basis in (*operand.register, *operand.lane, *operand.warp))
    assert result_layout(op, operand) is None


def test_halves_that_are_not_neighbours_cannot_be_joined_or_split():
    apart = blocked(SHAPE, (1, 1, 1), (8, 2, 2), (2, 1, 1), (2, 1, 0))
    with pytest.raises(LayoutError, match="lowest register bit"):
        result_layout(Split(_value()), apart)
    with pytest.raises(LayoutError, match="lowest register bit"):
        operand_layout(Join(_value((16, 8)), _value((16, 8))), apart)


def test_other_operations_are_no_views():
    negation = Neg(_value())
    assert not is_view(negation)
    assert not is_view(None)
    with pytest.raises(TypeError, match="not a view"):
        operand_layout(negation, _layout())
    assert {ExpandDims, Broadcast, Permute, Reshape, Join, Split} == VIEWS
