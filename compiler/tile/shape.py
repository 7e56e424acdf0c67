"""Operations that make tiles and change their shape; none computes a number except ``arange``."""

from __future__ import annotations

from ..ir.core import Op, Value
from ..ir.types import I32, Tile


class Arange(Op, mnemonic="arange"):
    """start, start+1, ..., end-1 as i32; end - start is a power of two."""

    start: int
    end: int

    def infer(self) -> tuple[Tile, ...]:
        """Result: i32[end - start]; raises TypeMismatch unless that is a power of two."""
        size = self.end - self.start
        if size <= 0:
            raise self.fail(
                f"arange({self.start}, {self.end}) ends before it begins, or at once",
            ) from ValueError("arange's end argument must be greater than the start argument")  # as below
        if size & (size - 1):
            raise self.fail(
                f"arange({self.start}, {self.end}) has {size} elements, which is not a power of two",
                hint=f"use arange({self.start}, {self.start + (1 << (size - 1).bit_length())})"
                " and mask the elements that are not wanted",
            ) from ValueError("arange's range must be a power of 2")  # what programs for Triton look for
        return (Tile(I32, (size,)),)


class Splat(Op, mnemonic="splat"):
    """A tile filled with one scalar."""

    x: Value
    shape: tuple[int, ...]

    def infer(self) -> tuple[Tile, ...]:
        """Result: the scalar's type in ``shape``; raises TypeMismatch for a tile."""
        if self.x.type.rank:
            raise self.fail("needs a scalar")
        return (Tile(self.x.type.elem, self.shape),)


class ExpandDims(Op, mnemonic="expand_dims"):
    """Insert a dimension of size 1 at ``axis`` (0 <= axis <= rank)."""

    x: Value
    axis: int

    def infer(self) -> tuple[Tile, ...]:
        """Result: rank + 1, with size 1 at ``axis``; raises TypeMismatch for an axis outside 0..rank."""
        shape = self.x.type.shape
        if not 0 <= self.axis <= len(shape):
            raise self.fail(f"axis {self.axis} is outside 0..{len(shape)}")
        return (self.x.type.with_shape((*shape[: self.axis], 1, *shape[self.axis :])),)


class Broadcast(Op, mnemonic="broadcast"):
    """Repeat dimensions of size 1 up to ``shape`` (same rank)."""

    x: Value
    shape: tuple[int, ...]

    def infer(self) -> tuple[Tile, ...]:
        """Result: the element type in ``shape``; raises TypeMismatch unless each size is kept or was 1."""
        have = self.x.type.shape
        if len(have) != len(self.shape) or any(h not in (1, w) for h, w in zip(have, self.shape, strict=True)):
            raise self.fail(f"cannot broadcast {list(have)} to {list(self.shape)}")
        return (self.x.type.with_shape(self.shape),)


class Reshape(Op, mnemonic="reshape"):
    """The same elements in row-major order, in another shape."""

    x: Value
    shape: tuple[int, ...]

    def infer(self) -> tuple[Tile, ...]:
        """Result: the element type in ``shape``; raises TypeMismatch where the number of elements differs."""
        made = self.x.type.with_shape(self.shape)
        if made.size != self.x.type.size:
            raise self.fail(f"cannot reshape {list(self.x.type.shape)} to {list(self.shape)}")
        return (made,)


class Permute(Op, mnemonic="permute"):
    """Result dimension d is operand dimension order[d]."""

    x: Value
    order: tuple[int, ...]

    def infer(self) -> tuple[Tile, ...]:
        """Result: sizes in the new order; raises TypeMismatch unless ``order`` is a permutation of all dimensions."""
        shape = self.x.type.shape
        if sorted(self.order) != list(range(len(shape))):
            raise self.fail(f"{list(self.order)} is not an order of {len(shape)} dimensions")
        return (self.x.type.with_shape(tuple(shape[d] for d in self.order)),)


class Join(Op, mnemonic="join"):
    """A new last dimension of size 2: index 0 is lhs, index 1 is rhs."""

    lhs: Value
    rhs: Value

    def infer(self) -> tuple[Tile, ...]:
        """Result: [..., 2] of the one type of both operands, else TypeMismatch."""
        if self.lhs.type != self.rhs.type:
            raise self.fail("operands must have one type")
        return (self.lhs.type.with_shape((*self.lhs.type.shape, 2)),)


class Split(Op, mnemonic="split"):
    """Takes the last dimension, of size 2, apart: the inverse of join."""

    x: Value

    def infer(self) -> tuple[Tile, ...]:
        """Two results of shape [...] from [..., 2]; raises TypeMismatch for another last size."""
        shape = self.x.type.shape
        if not shape or shape[-1] != 2:
            raise self.fail("the last dimension must have size 2")
        half = self.x.type.with_shape(shape[:-1])
        return (half, half)
