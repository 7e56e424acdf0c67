"""Reductions and scans with a combining region, and histograms."""

from __future__ import annotations

from ..ir.core import Block, Op, Value
from ..ir.types import I1, I32, Tile


def _check_combine(op: Op, inputs: tuple[Value, ...], axis: int, combine: Block) -> None:
    shapes = {v.type.shape for v in inputs}
    if len(shapes) != 1:
        raise op.fail("all operands must have one shape")
    rank = inputs[0].type.rank
    if not 0 <= axis < rank:
        raise op.fail(f"axis {axis} is outside 0..{rank - 1}")
    wanted = [Tile(v.type.elem) for v in (*inputs, *inputs)]
    if [a.type for a in combine.args] != wanted:
        raise op.fail("the combining region takes two scalars for every operand")
    end = combine.terminator
    made = [] if end is None else [v.type for v in end.operands]
    if made != wanted[: len(inputs)]:
        named = [", ".join(str(t) for t in types) for types in (made, wanted[: len(inputs)])]
        raise op.fail(
            f"the combining function gives ({named[0]}) where the operands are of ({named[1]})",
            "cast what it returns: tl.maximum and arithmetic make f32 of bf16",
        )


class Reduce(Op, mnemonic="reduce"):
    """Combine all elements along ``axis``, in any order; the axis disappears.

    ``combine`` takes (a..., b...) and yields the combination; it must be associative and commutative.
    """

    inputs: tuple[Value, ...]
    axis: int
    combine: Block

    def infer(self) -> tuple[Tile, ...]:
        """Results: the operands' types without dimension ``axis``; without a layout.

        Raises TypeMismatch: shapes differ, the axis is outside the rank, or ``combine`` takes or yields other scalars.
        """
        _check_combine(self, self.inputs, self.axis, self.combine)
        shape = self.inputs[0].type.shape
        kept = shape[: self.axis] + shape[self.axis + 1 :]
        return tuple(v.type.with_shape(kept) for v in self.inputs)


class Scan(Op, mnemonic="scan"):
    """Inclusive prefix combination along ``axis``; ``reverse`` starts at the end."""

    inputs: tuple[Value, ...]
    axis: int
    reverse: bool
    combine: Block

    def infer(self) -> tuple[Tile, ...]:
        """Results: the operands' types, without a layout; raises TypeMismatch as Reduce does."""
        _check_combine(self, self.inputs, self.axis, self.combine)
        return tuple(v.type.with_shape(v.type.shape) for v in self.inputs)


class Histogram(Op, mnemonic="histogram"):
    """How many elements of ``x`` equal 0, 1, ..., bins - 1; others, and those that are masked off, do not count."""

    x: Value
    bins: int
    mask: Value | None = None

    def infer(self) -> tuple[Tile, ...]:
        """Result: i32[bins]; raises TypeMismatch unless ``x`` is i32, u32, i64 or u64 and ``mask`` i1 of its shape."""
        if not self.x.type.is_integer or self.x.type.scalar.bits < 32:
            raise self.fail("a histogram counts integers of 32 or 64 bits")
        if self.mask is not None and self.mask.type.with_layout(None) != Tile(I1, self.x.type.shape):
            raise self.fail("the mask must be i1 of the elements' shape")
        return (Tile(I32, (self.bins,)),)
