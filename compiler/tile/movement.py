"""Operations by which elements of one tile change places; none computes a number."""

from __future__ import annotations

from ..ir.core import Op, Value
from ..ir.types import I32, Tile


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


class Gather(Op, mnemonic="gather"):
    """The element of ``src`` at the same coordinates, but at ``index`` along ``axis``; indices count modulo its size.

    On GPUs ``src`` passes through shared memory.
    """

    src: Value
    index: Value
    axis: int

    def infer(self) -> tuple[Tile, ...]:
        """Result: the element type of ``src`` in the shape of ``index``.

        Raises TypeMismatch for an axis outside the rank, for indices that are not i32, and where the shapes differ in
        another dimension than ``axis``.
        """
        have, wanted = self.src.type.shape, self.index.type.shape
        if not 0 <= self.axis < len(have):
            raise self.fail(f"axis {self.axis} is outside 0..{len(have) - 1}")
        if self.index.type.elem != I32:
            raise self.fail("indices are i32")
        if len(have) != len(wanted) or any(
            d != self.axis and m != n for d, (m, n) in enumerate(zip(have, wanted, strict=True))
        ):
            raise self.fail(f"indices of shape {list(wanted)} do not fit {list(have)} along axis {self.axis}")
        return (self.index.type.with_elem(self.src.type.elem),)
