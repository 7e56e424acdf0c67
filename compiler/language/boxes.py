"""Boxes of arrays: what block pointers and tensor descriptors have in common."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import TypeMismatch
from ..ir.core import Value
from ..ir.types import I32, I64, U8, U16, Element, Pointer, Scalar, Tile
from ..tile import blocks
from .arithmetic import as_tensor, broadcast_to_shape, cast_to
from .constexpr import unwrap
from .context import current
from .elements import extends_to, from_memory, memory_pointer, pointee_of, to_memory
from .promotion import fits
from .shapes import shape_tuple
from .tensor import Operand, emit, tensor


@dataclass(frozen=True, slots=True)
class ArrayBlock:
    """A box of ``shape`` inside the array that begins at ``base``, a pointer.

    ``sizes``: the array's extents; ``strides``: elements between neighbours along each dimension; ``offsets``: the
    index in the array of the box's first element. Each is an integer scalar, or a number known at compile time.
    """

    base: tensor
    sizes: tuple[Operand, ...]
    strides: tuple[Operand, ...]
    offsets: tuple[Operand, ...]
    shape: tuple[int, ...]

    def load(self, checked: tuple[int, ...], padding: str, cache: str, eviction: str) -> tensor:
        """The elements of the box. Along dimensions d with ``checked[d]`` those outside the array are ``padding``,
        "zero" or "nan"; raises TypeMismatch for unknown names and for NaN among integers."""
        op = blocks.BlockLoad(*self._place(), self.shape, checked, padding or "zero", cache, eviction)
        return from_memory(emit(op), pointee_of(self.base, "load"))

    def store(self, value: Operand, checked: tuple[int, ...], cache: str, eviction: str) -> None:
        """Write ``value``, converted and repeated to the box's shape; raises TypeMismatch where it does not fit."""
        x = to_memory(value, pointee_of(self.base, "store"))
        if not extends_to(x.shape, self.shape):
            raise TypeMismatch(f"a value of {x.value.type} does not fit a block of shape {list(self.shape)}")
        filled = broadcast_to_shape(x, self.shape)
        current().builder.emit(blocks.BlockStore(*self._place(), filled.value, checked, cache, eviction))

    def _place(self) -> tuple[Value, tuple[Value, ...], tuple[Value, ...], tuple[Value, ...]]:
        sizes, strides, offsets = (
            tuple(as_tensor(x).value for x in items) for items in (self.sizes, self.strides, self.offsets)
        )
        return memory_pointer(self.base).value, sizes, strides, offsets


def array_pointer(base: object, what: str) -> Pointer:
    """The type of ``base``; raises TypeMismatch unless it is one pointer."""
    pointee_of(base, what)
    assert isinstance(base, tensor)  # noqa: S101 -- pointee_of has looked
    if base.shape or not isinstance(base.dtype, Pointer):
        raise TypeMismatch(
            f"{what} needs one pointer, got {base.type}",
            hint="pass the pointer to the array's first element; the offsets go into the block",
        )
    return base.dtype


def block_of(element: Element, shape: object, what: str) -> Tile:
    """The type of a block of ``shape``, ints known at compile time; raises TypeMismatch for sizes no tile can have."""
    sizes = shape_tuple(shape, f"block_shape of {what}")
    if not sizes:
        raise TypeMismatch(f"block_shape of {what} needs a size for each dimension")
    return Tile(element, sizes)


def extents(values: object, rank: int, what: str) -> tuple[Operand, ...]:
    """Sizes or strides, one a dimension: numbers as they are, tensors as i32 or, where they are wider, as i64.

    Raises TypeMismatch for another number of them and for what is no integer.
    """
    return tuple(_integer(x, what, I64) for x in _items(values, rank, what))


def offsets_of(values: object, rank: int, what: str) -> tuple[Operand, ...]:
    """Indices, one a dimension, as numbers or i32; raises TypeMismatch, also for 64-bit tensors."""
    return tuple(_integer(x, what, I32) for x in _items(values, rank, what))


def _items(values: object, rank: int, what: str) -> tuple[object, ...]:
    items = tuple(map(unwrap, values)) if isinstance(values, tuple | list) else (unwrap(values),)
    if len(items) != rank:
        raise TypeMismatch(f"{what} has {len(items)} entries for {rank} dimensions")
    return items


def _integer(value: object, what: str, widest: Scalar) -> Operand:
    if isinstance(value, int) and not isinstance(value, bool):
        if not fits(value, widest):
            raise TypeMismatch(f"{what}: {value} is out of range for {widest.code}")
        return value
    if not isinstance(value, tensor) or value.shape or not value.value.type.is_integer:
        shown = value.value.type if isinstance(value, tensor) else repr(value)
        raise TypeMismatch(f"{what} must be made of integers, got {shown}")
    type = I32 if value.type.scalar.bits < 32 or value.type.scalar in (I32, U8, U16) else I64
    if type == I64 and widest == I32:
        raise TypeMismatch(f"{what} must be int32, got {value.value.type}", hint="convert it with .to(tl.int32)")
    return cast_to(value, type)
