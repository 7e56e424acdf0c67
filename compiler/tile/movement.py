"""Operations by which elements of one tile change places; none computes a number."""

from __future__ import annotations

from ..ir.core import Op, Value
from ..ir.types import Tile


class Butterfly(Op, mnemonic="butterfly"):
    """Element i along ``axis`` is operand element i XOR ``distance``: pairs of elements change places.

    A distance of n - 1 reverses an axis of n elements, and powers of two are what sorting networks compare over. On
    GPUs it is a renaming of registers, a butterfly shuffle, or a round trip through shared memory.
    """

    x: Value
    axis: int
    distance: int

    def infer(self) -> tuple[Tile, ...]:
        """Result: the operand's type; raises TypeMismatch for an axis outside the rank or a distance outside it."""
        shape = self.x.type.shape
        if not 0 <= self.axis < len(shape):
            raise self.fail(f"axis {self.axis} is outside 0..{len(shape) - 1}")
        if not 0 < self.distance < shape[self.axis]:
            raise self.fail(f"distance {self.distance} is outside 1..{shape[self.axis] - 1}")
        return (self.x.type,)
