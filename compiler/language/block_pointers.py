"""Block pointers: the place of a block in an array, which moves by whole blocks."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from ..errors import TypeMismatch
from ..ir.types import Pointer
from . import arithmetic
from .boxes import ArrayBlock, array_pointer, block_of, extents, offsets_of
from .builtin import builtin
from .shapes import shape_tuple
from .structure import Structure
from .tensor import Operand, tensor


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockPointer(Structure):
    """What ``make_block_ptr`` gives: where a block of ``block_shape`` lies in an array, and what the array is."""

    base: tensor
    sizes: tuple[Operand, ...]
    strides: tuple[Operand, ...]
    offsets: tuple[Operand, ...]
    block_shape: tuple[int, ...]

    kind = "a block pointer"
    members = ("advance", "dtype", "store", "type")

    @property
    def dtype(self) -> Pointer:
        """The type of pointers to the array's elements; ``p.dtype.element_ty`` is that of the elements."""
        element = self.base.dtype
        assert isinstance(element, Pointer)  # noqa: S101 -- make_block_ptr has looked
        return element

    @property
    def type(self) -> Pointer:
        """The same as :attr:`dtype`."""
        return self.dtype

    @property
    def block(self) -> ArrayBlock:
        """What loads and stores touch."""
        return ArrayBlock(self.base, self.sizes, self.strides, self.offsets, self.block_shape)

    @property
    def parts(self) -> tuple[object, ...]:
        """Base, sizes, strides, offsets: all that may change while a kernel runs."""
        return (self.base, *self.sizes, *self.strides, *self.offsets)

    def with_parts(self, parts: tuple[object, ...]) -> BlockPointer:
        """The same block of another array or at another place."""
        rank = len(self.block_shape)
        sizes, strides, offsets = (parts[1 + i * rank : 1 + (i + 1) * rank] for i in range(3))
        return replace(self, base=parts[0], sizes=sizes, strides=strides, offsets=offsets)  # type: ignore[arg-type]

    @property
    def form(self) -> Hashable:
        """The shape of the block."""
        return self.block_shape

    @builtin
    def advance(self, offsets: object) -> BlockPointer:
        """The block ``offsets`` elements further along each dimension; this one stays where it is."""
        return _advanced(self, offsets)

    @builtin
    def store(
        self,
        value: Operand,
        *,
        boundary_check: object = (),
        cache_modifier: str | None = "",
        eviction_policy: str | None = "",
    ) -> None:
        """``tl.store`` of ``value`` to the block."""
        store_block(self, value, boundary_check, cache_modifier or "", eviction_policy or "")

    def __str__(self) -> str:
        return f"block pointer<{'x'.join(map(str, self.block_shape))}x{self.dtype.pointee.code}>"


@builtin
def make_block_ptr(
    base: tensor, shape: object, strides: object, offsets: object, block_shape: object, order: object
) -> BlockPointer:
    """A block of ``block_shape`` in the array of ``shape`` that begins at ``base``, one pointer.

    ``strides``: elements between neighbours along each dimension; ``offsets``: index of the block's first element (i32;
    it may be negative or beyond the end, see ``boundary_check`` of load and store). These and ``shape`` are integers,
    known at compile time or not. ``order``: the dimensions, those that vary fastest in memory first; layouts follow
    from the strides, so it is checked and otherwise without effect: blocks whose orders differ meet in branches and
    loops.

    Raises TypeMismatch: lists of different length, values that are no integers, a block that no tile can be.
    """
    what = "make_block_ptr"
    element = array_pointer(base, what)
    block = block_of(element.pointee, block_shape, what)
    axes = shape_tuple(order, "order of make_block_ptr")
    if sorted(axes) != list(range(block.rank)):
        raise TypeMismatch(
            f"order = {list(axes)} is not a permutation of the {block.rank} dimensions",
            hint=f"use {tuple(reversed(range(block.rank)))} for a row-major array",
        )
    return BlockPointer(
        base,
        extents(shape, block.rank, "shape of make_block_ptr"),
        extents(strides, block.rank, "strides of make_block_ptr"),
        offsets_of(offsets, block.rank, "offsets of make_block_ptr"),
        block.shape,
    )


@builtin
def advance(base: BlockPointer, offsets: object) -> BlockPointer:
    """The block ``offsets`` elements (i32) further along each dimension; ``base`` itself stays where it is.

    Raises TypeMismatch: not a block pointer, or another number of offsets than dimensions.
    """
    if not isinstance(base, BlockPointer):
        shown = base.value.type if isinstance(base, tensor) else repr(base)
        raise TypeMismatch(f"advance needs a block pointer, got {shown}", hint="add offsets to other pointers")
    return _advanced(base, offsets)


def _advanced(pointer: BlockPointer, offsets: object) -> BlockPointer:
    steps = offsets_of(offsets, len(pointer.block_shape), "offsets of advance")
    return replace(pointer, offsets=tuple(map(_sum, pointer.offsets, steps)))


def _sum(offset: Operand, step: Operand) -> Operand:
    """Numbers known at compile time stay so, and what does not move is the same value."""
    if not isinstance(step, tensor) and step == 0:
        return offset
    if not isinstance(offset, tensor) and not isinstance(step, tensor):
        return offset + step
    return arithmetic.add(offset, step)


def load_block(pointer: BlockPointer, boundary_check: object, padding: object, cache: str, eviction: str) -> tensor:
    """What ``tl.load`` does with a block pointer; raises TypeMismatch for unknown dimensions, padding or modifiers."""
    if padding not in ("", "zero", "nan", None):
        raise TypeMismatch(f"unknown padding_option {padding!r}", hint='use "zero" or "nan"')
    return pointer.block.load(_checked(pointer, boundary_check), str(padding or ""), cache, eviction)


def store_block(pointer: BlockPointer, value: Operand, boundary_check: object, cache: str, eviction: str) -> None:
    """What ``tl.store`` does with a block pointer; raises as :func:`load_block`, and for a value that does not fit."""
    pointer.block.store(value, _checked(pointer, boundary_check), cache, eviction)


def _checked(pointer: BlockPointer, boundary_check: object) -> tuple[int, ...]:
    """1 for each dimension that is checked."""
    rank = len(pointer.block_shape)
    dims = shape_tuple(() if boundary_check is None else boundary_check, "boundary_check")
    if len(set(dims)) < len(dims) or not all(0 <= d < rank for d in dims):
        raise TypeMismatch(
            f"boundary_check = {list(dims)} does not name dimensions of a block of shape {list(pointer.block_shape)}",
            hint=f"name each of {', '.join(map(str, range(rank)))} at most once",
        )
    return tuple(int(d in dims) for d in range(rank))
