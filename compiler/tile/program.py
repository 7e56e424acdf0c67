"""Where a program stands in its grid."""

from __future__ import annotations

from ..ir.core import Op, Value
from ..ir.types import I32, Tile
from .elementwise import Constant, Sub


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
