"""Where a program stands in its grid."""

from __future__ import annotations

from ..ir.core import Op
from ..ir.types import I32, Tile


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
