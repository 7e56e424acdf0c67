"""Tensor descriptors: an array and the block in which it is read and written, always inside its bounds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ..errors import TypeMismatch
from ..ir.types import F32, I1, I32, I64, Element, Pointer, Tile
from ..tile.blocks import PADDING
from ..tile.elementwise import Bitcast
from .arithmetic import add, as_tensor, bit_and, cast, cast_to, shift_right
from .boxes import ArrayBlock, array_pointer, block_of, extents, offsets_of
from .builtin import builtin
from .cells import box, cells, rows
from .conditions import compare, where
from .debugging import multiple_of
from .structure import Membered, Structure
from .target_info import is_cuda
from .tensor import Operand, shape_of, tensor

#: Most dimensions of a descriptor, and fewest bytes of a block's last one: what the copy engines of GPUs take (CUDA
#: driver API, cuTensorMapEncodeTiled).
MAX_RANK = 5
MIN_ROW_BYTES = 16


@dataclass(frozen=True, slots=True)
class DescriptorType(Membered):
    """The type of a tensor descriptor; it prints as in signatures, ``tensordesc<fp16[64, 64]>``."""

    block_type: Tile

    kind: ClassVar[str] = "the type of a tensor descriptor"
    members: ClassVar[tuple[str, ...]] = ("block_type",)

    def __str__(self) -> str:
        element = self.block_type.scalar
        return f"tensordesc<{element.short}[{', '.join(map(str, self.block_type.shape))}]>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class tensor_descriptor(Structure):  # noqa: N801 -- the language's own name
    """What ``make_tensor_descriptor`` gives, and what a kernel sees of a TensorDescriptor that is passed to it."""

    base: tensor
    sizes: tuple[Operand, ...]
    steps: tuple[Operand, ...]
    block_type: Tile
    padding: str
    #: Whether what is loaded, f32, is rounded to tf32.
    tf32: bool = False

    kind: ClassVar[str] = "a tensor descriptor"
    members: ClassVar[tuple[str, ...]] = (
        *("block_shape", "block_type", "dtype", "shape", "strides", "type"),
        *("load", "store", "gather", "scatter"),
        *(f"atomic_{kind}" for kind in ("add", "and", "max", "min", "or", "xor")),
    )

    @property
    def shape(self) -> tuple[tensor, ...]:
        """The array's extents, integer scalars."""
        return tuple(as_tensor(size) for size in self.sizes)

    @property
    def strides(self) -> tuple[tensor, ...]:
        """Elements between neighbours along each dimension, scalars i64; the last one is 1."""
        return tuple(cast_to(as_tensor(step), I64) for step in self.steps)

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The shape of what is loaded and stored; equal to a list of its sizes, too."""
        return shape_of(self.block_type.shape)

    @property
    def dtype(self) -> Element:
        """The element type."""
        return self.block_type.elem

    @property
    def type(self) -> DescriptorType:
        """Element type and block shape in one."""
        return DescriptorType(self.block_type)

    @property
    def parts(self) -> tuple[object, ...]:
        """Base, sizes, strides: all that may change while a kernel runs."""
        return (self.base, *self.sizes, *self.steps)

    def with_parts(self, parts: tuple[object, ...]) -> tensor_descriptor:
        """A descriptor of another array with the same blocks."""
        base, sizes, steps = parts[0], parts[1 : 1 + self.block_type.rank], parts[1 + self.block_type.rank :]
        return replace(self, base=base, sizes=sizes, steps=steps)  # type: ignore[arg-type]

    @property
    def form(self) -> Hashable:
        """Type of the block, the padding and the rounding."""
        return self.block_type, self.padding, self.tf32

    @builtin
    def load(self, offsets: object, cache_modifier: str | None = "", eviction_policy: str | None = "") -> tensor:
        """The block whose first element has the index ``offsets`` (i32); outside the array it is the padding.

        Raises TypeMismatch: another number of offsets than dimensions, an unknown modifier.
        """
        block = self._block(offsets, "offsets of load")
        return self._rounded(block.load(self._all_checked, self.padding, cache_modifier or "", eviction_policy or ""))

    @builtin
    def store(self, offsets: object, value: Operand) -> None:
        """Write ``value``, converted to the element type, at index ``offsets`` (i32); what is outside is left out.

        Raises TypeMismatch: another number of offsets than dimensions, a value that does not fit the block.
        """
        self._block(offsets, "offsets of store").store(value, self._all_checked, "", "")

    @builtin
    def gather(self, x_offsets: tensor, y_offset: Operand) -> tensor:
        """The rows ``x_offsets`` (rank 1, int16 or int32) of an array of rank 2, from column ``y_offset`` on: a tile of
        as many rows, as wide as the block, which is one row. Outside the array it is the padding.

        Raises TypeMismatch: a block that is not one row, row numbers of another type or rank.
        """
        indices = rows(x_offsets, y_offset, self.block_shape, "gather of a tensor descriptor")
        return self._rounded(cells(self.base, self.sizes, self.steps, indices).load(self.padding))

    @builtin
    def scatter(self, value: tensor, x_offsets: tensor, y_offset: Operand) -> None:
        """Write the rows of ``value`` where :meth:`gather` reads them; what is outside the array is left out. If a row
        is written twice, either may be there.

        Raises TypeMismatch as gather does, and for a value of another shape.
        """
        indices = rows(x_offsets, y_offset, self.block_shape, "scatter of a tensor descriptor")
        if value.shape != indices[0].shape:
            raise TypeMismatch(f"scatter of {x_offsets.numel} rows takes {list(indices[0].shape)}, got {value.type}")
        cells(self.base, self.sizes, self.steps, indices).store(value)

    def _block(self, offsets: object, what: str) -> ArrayBlock:
        places = offsets_of(offsets, len(self.block_shape), what)
        return ArrayBlock(self.base, self.sizes, self.steps, places, self.block_shape)

    def _rounded(self, x: tensor) -> tensor:
        return rounded_to_tf32(x) if self.tf32 else x

    @property
    def _all_checked(self) -> tuple[int, ...]:
        return (1,) * len(self.block_shape)

    def __str__(self) -> str:
        return str(self.type)


def _atomic(kind: str) -> Callable[..., None]:
    def method(self: tensor_descriptor, offsets: object, value: tensor) -> None:
        what = f"atomic_{kind} of a tensor descriptor"
        places = offsets_of(offsets, len(self.block_shape), f"offsets of {what}")
        if value.shape != self.block_shape:
            raise TypeMismatch(f"{what} takes a value of shape {list(self.block_shape)}, got {value.type}")
        cells(self.base, self.sizes, self.steps, box(places, self.block_shape)).update(kind, value)

    method.__name__ = method.__qualname__ = f"atomic_{kind}"
    method.__doc__ = f"""tl.atomic_{kind} of ``value`` with the block at index ``offsets``, relaxed; what is outside the
    array is left out. Raises TypeMismatch: a value of another shape than the block, a type without that atomic."""
    return builtin(method)


for _kind in ("add", "and", "max", "min", "or", "xor"):
    setattr(tensor_descriptor, f"atomic_{_kind}", _atomic(_kind))


@builtin
def make_tensor_descriptor(
    base: tensor, shape: object, strides: object, block_shape: object, padding_option: str = "zero"
) -> tensor_descriptor:
    """A descriptor of the array of ``shape`` that begins at ``base``, one pointer, aligned to 16 bytes.

    One to five dimensions. ``strides``: elements between neighbours along each; the last is 1, the others are multiples
    of 16 bytes, as the author promises. ``block_shape``: the shape of what is loaded and stored, known at compile time;
    its last dimension has 16 bytes or more. ``padding_option``: what loads give outside the array, "zero" or "nan".

    Raises TypeMismatch where the arguments are not like that.
    """
    what = "make_tensor_descriptor"
    block = block_of(array_pointer(base, what).pointee, block_shape, what)
    check_block(block, padding_option, what)
    _check_row(block, what)
    steps = extents(strides, block.rank, f"strides of {what}")
    if isinstance(steps[-1], tensor) or steps[-1] != 1:
        shown = "a value of the running program" if isinstance(steps[-1], tensor) else steps[-1]
        raise TypeMismatch(
            f"{what}: the last stride must be 1, got {shown}", hint="write 1, or swap the dimensions of the array"
        )
    sizes = extents(shape, block.rank, f"shape of {what}")
    return tensor_descriptor(*_as_promised(base, sizes, steps, block), block, padding_option)


Extents = tuple[Operand, ...]


def _as_promised(base: tensor, sizes: Extents, steps: Extents, block: Tile) -> tuple[tensor, Extents, Extents]:
    """Base, sizes and strides, the alignment of an address that was a number noted for GPUs, which copy accordingly.

    Of parameters and what is added to them a launch knows more than that.
    """
    if not is_cuda() or not isinstance(base.value.op, Bitcast):
        return base, sizes, steps
    elements = max(1, MIN_ROW_BYTES // block.elem.bytes)
    aligned = tuple(multiple_of(step, elements) if isinstance(step, tensor) else step for step in steps)
    return multiple_of(base, MIN_ROW_BYTES), sizes, aligned


def check_block(block: Tile, padding: object, what: str) -> None:
    """Raise TypeMismatch for a block that descriptors cannot have."""
    if block.rank > MAX_RANK:
        raise TypeMismatch(f"{what} has {block.rank} dimensions", hint=f"use one to {MAX_RANK}")
    if isinstance(block.elem, Pointer) or block.elem == I1:
        raise TypeMismatch(f"{what} describes arrays of numbers, not of {block.elem.code}", hint="use a block pointer")
    if padding not in PADDING or (padding == "nan" and not block.scalar.has_nan):
        raise TypeMismatch(
            f"{what}: padding_option {padding!r} for {block.elem.code}", hint='"zero", or "nan" for floats'
        )


def _check_row(block: Tile, what: str) -> None:
    """Raise TypeMismatch for rows that are too short for the copy engine. Descriptors that programs make may have any:
    theirs are often placeholders until a configuration's hook sets the block."""
    row = block.shape[-1] * block.elem.bytes
    if row < MIN_ROW_BYTES:
        raise TypeMismatch(
            f"Descriptor block shape must have at least 16 bytes in the last dimension: that of {what} has {row}",
            hint=f"it needs {MIN_ROW_BYTES}: {MIN_ROW_BYTES // block.elem.bytes} elements of {block.elem.code}",
        )


def rounded_to_tf32(x: tensor) -> tensor:
    """f32 rounded to the nearest number with ten bits of fraction, ties to even; infinities and NaN stay."""
    bits = cast(x, I32, bitcast=True)
    last = bit_and(shift_right(bits, 13), 1)
    rounded = bit_and(add(bits, add(last, 0xFFF)), ~0x1FFF)
    special = compare(bit_and(bits, 0x7F800000), 0x7F800000, "eq")
    return where(special, x, cast(rounded, F32, bitcast=True))


def descriptor_of(values: Sequence[tensor], block: Tile, padding: str, tf32: bool = False) -> tensor_descriptor:
    """The descriptor whose address, sizes and strides but the last are ``values``, in that order."""
    base, *rest = values
    return tensor_descriptor(base, tuple(rest[: block.rank]), (*rest[block.rank :], 1), block, padding, tf32)


@builtin
def load_tensor_descriptor(desc: tensor_descriptor, offsets: object) -> tensor:
    """``desc.load(offsets)``."""
    return _descriptor(desc, "load_tensor_descriptor").load(offsets)


@builtin
def store_tensor_descriptor(desc: tensor_descriptor, offsets: object, value: Operand) -> None:
    """``desc.store(offsets, value)``."""
    _descriptor(desc, "store_tensor_descriptor").store(offsets, value)


def _descriptor(value: object, what: str) -> tensor_descriptor:
    if not isinstance(value, tensor_descriptor):
        shown = value.value.type if isinstance(value, tensor) else repr(value)
        raise TypeMismatch(
            f"{what} needs a tensor descriptor, got {shown}", hint="make one with make_tensor_descriptor"
        )
    return value
