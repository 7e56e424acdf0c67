"""Boxes of arrays: accesses whose addresses are linear in the tile's coordinates, with bounds instead of masks.

Pointer arithmetic that has this form (``passes/access.py`` proves it), block pointers and tensor descriptors all become
these two operations. Dimension d of the array has extent ``sizes[d]`` and ``strides[d]`` elements between neighbours.
The box begins at index ``offsets``; the last dimensions of the array are those of the tile, in its order, and along the
leading ones the box is one element thick. Where ``checked[d]`` is 1, elements outside ``0 <= index < sizes[d]`` are not
touched; along the other dimensions the author promises that there are none. Where ``proven[d]`` is 1, the offset is
known not to be negative, from promises about arguments that facts about its operands do not have.
"""

from __future__ import annotations

from ..ir.core import Effect, Op, Value
from ..ir.types import Pointer, Tile
from .memory import LOAD_CACHE, STORE_CACHE, check_caching

PADDING = ("zero", "nan")


def _check_box(op: BlockLoad | BlockStore, rank: int) -> Tile:
    """Check what loads and stores share; return the scalar type that ``base`` points to."""
    if not isinstance(op.base.type.elem, Pointer) or op.base.type.rank:
        raise op.fail("the base must be one pointer")
    dimensions = {len(op.sizes), len(op.strides), len(op.offsets), len(op.checked)}
    if op.proven:
        dimensions.add(len(op.proven))
    if len(dimensions) != 1 or len(op.sizes) < rank:
        raise op.fail("sizes, strides, offsets and checks must have one entry a dimension of the array")
    for value in (*op.sizes, *op.strides, *op.offsets):
        if value.type.rank or not value.type.is_integer:
            raise op.fail("sizes, strides and offsets must be integer scalars")
    return Tile(op.base.type.elem.pointee)


class BlockLoad(Op, mnemonic="block_load", effect=Effect.READ):
    """Read a box of ``shape``. Elements outside the array are zero, or NaN where ``padding`` says so.

    ``alignment``: bytes of which the address of every row of the box, along the axis with stride 1, is a multiple, if
    the kernel's author promises more than follows from the operands.
    """

    base: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]
    shape: tuple[int, ...]
    checked: tuple[int, ...]
    padding: str = "zero"
    cache: str = ""
    eviction: str = ""
    alignment: int = 1
    proven: tuple[int, ...] = ()

    def infer(self) -> tuple[Tile, ...]:
        """Result: a tile of ``shape`` of what ``base`` points to; TypeMismatch for dimensions that do not fit."""
        made = Tile(_check_box(self, len(self.shape)).elem, self.shape)
        if self.padding not in PADDING or (self.padding == "nan" and not made.scalar.has_nan):
            raise self.fail(f"unknown padding {self.padding!r}", hint="zero, or nan for floats")
        check_caching(self, self.cache, LOAD_CACHE, self.eviction)
        return (made,)


class BlockStore(Op, mnemonic="block_store", effect=Effect.WRITE):
    """Write a box; elements outside the array are left out."""

    base: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]
    value: Value
    checked: tuple[int, ...]
    cache: str = ""
    eviction: str = ""
    proven: tuple[int, ...] = ()

    def infer(self) -> tuple[Tile, ...]:
        """No results. ``value`` is a tile of what ``base`` points to, which is not const, else TypeMismatch."""
        elem = _check_box(self, self.value.type.rank).elem
        if self.value.type.elem != elem:
            raise self.fail(f"the value must be a tile of {elem.code}")
        if isinstance(self.base.type.elem, Pointer) and self.base.type.elem.const:
            raise self.fail("Cannot store to a constant pointer")
        check_caching(self, self.cache, STORE_CACHE, self.eviction)
        return ()
