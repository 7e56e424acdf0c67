"""Where a program stands in its grid."""

from __future__ import annotations

from ..ir.core import Function, Op, Value
from ..ir.types import I32, Tile
from .elementwise import Constant, IntDiv, Min, Mul, Sub


class _GridOp(Op):
    axis: int

    def infer(self) -> tuple[Tile, ...]:
        if self.axis not in (0, 1, 2):
            raise self.fail(f"axis must be 0, 1 or 2, got {self.axis}")
        return (Tile(I32),)


class ProgramId(_GridOp, mnemonic="program_id"):
    """Index of this program along a grid axis."""


class NumPrograms(_GridOp, mnemonic="num_programs"):
    """Number of programs along a grid axis."""


def counts_down(value: Value) -> bool:
    """Whether ``value`` is the index of this program counted from the last one, ``num_programs - 1 - program_id`` in
    either order. It is never negative."""
    if not isinstance(value.op, Sub) or not isinstance(value.op.lhs.op, Sub):
        return False
    programs, taken = value.op.lhs.op.lhs.op, (value.op.lhs.op.rhs.op, value.op.rhs.op)
    return (
        isinstance(programs, NumPrograms)
        and any(isinstance(op, ProgramId) and op.axis == programs.axis for op in taken)
        and any(isinstance(op, Constant) and op.value == 1 for op in taken)
    )


def rows_of_group(value: Value) -> bool:
    """Whether ``value`` is how many rows of tiles a group has in the grouped order of Triton's tutorials:
    ``min(rows - place // span * size, size)`` with a number for ``size``. It is positive for each place that has a
    tile; nothing says that a launch has no programs beyond the last tile, so this is an assumption and not a fact.
    Programs that are beyond may find other elements than their pointers lead to."""
    if not isinstance(value.op, Min):
        return False
    sides = (value.op.lhs, value.op.rhs), (value.op.rhs, value.op.lhs)
    return any(isinstance(rest.op, Sub) and _begins_group(rest.op.rhs, size) for rest, size in sides)


def rows_of_groups(function: Function) -> set[Value]:
    """All values of ``function`` that are :func:`rows_of_group`."""
    return {result for op in function.walk() for result in op.results if rows_of_group(result)}


def _begins_group(row: Value, size: Value) -> bool:
    """Whether ``row`` is the first one of a group of ``size``, a positive number."""
    if not isinstance(size.op, Constant) or not size.type.is_integer or size.op.value <= 0:
        return False
    if size.op.value == 1:
        return isinstance(row.op, IntDiv)
    if not isinstance(row.op, Mul):
        return False
    sides = (row.op.lhs.op, row.op.rhs.op), (row.op.rhs.op, row.op.lhs.op)
    return any(
        isinstance(group, IntDiv) and isinstance(by, Constant) and by.value == size.op.value for group, by in sides
    )
