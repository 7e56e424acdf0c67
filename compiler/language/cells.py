"""Elements of an array one by one, inside its bounds: what tensor descriptors do that is no box or not just a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import TypeMismatch
from ..ir.types import I16, I32, I64
from . import memory
from .arithmetic import add, as_tensor, broadcast_to_shape, cast_to, mul
from .conditions import compare, logical_and
from .shapes import arange, reshape
from .tensor import Operand, tensor


@dataclass(frozen=True, slots=True)
class Cells:
    """Pointers to elements of an array, and which of them are inside it."""

    pointers: tensor
    inside: tensor

    def load(self, padding: str) -> tensor:
        """The elements; outside the array ``padding``, "zero" or "nan"."""
        return memory.load(self.pointers, self.inside, float("nan") if padding == "nan" else 0)

    def store(self, value: Operand) -> None:
        """Write ``value``, converted to the element type; what is outside the array is left out."""
        memory.store(self.pointers, value, self.inside)

    def update(self, kind: str, value: tensor) -> None:
        """Combine ``value`` with the elements, by the atomic of ``kind``, in no order among others."""
        memory.read_modify_write(kind, self.pointers, value, self.inside, "relaxed", None)


def cells(base: tensor, sizes: Sequence[Operand], steps: Sequence[Operand], indices: Sequence[tensor]) -> Cells:
    """The elements of the array at ``base`` with these ``indices``, a tile of integers for each dimension; all have one
    shape."""
    pointers, inside = broadcast_to_shape(base, indices[0].shape), None
    for index, size, step in zip(indices, sizes, steps, strict=True):
        place = cast_to(index, I64)
        pointers = add(pointers, mul(place, cast_to(as_tensor(step), I64)))
        within = logical_and(compare(place, 0, "ge"), compare(place, cast_to(as_tensor(size), I64), "lt"))
        inside = within if inside is None else logical_and(inside, within)
    assert inside is not None  # noqa: S101 -- an array has a dimension
    return Cells(pointers, inside)


def box(offsets: Sequence[Operand], shape: tuple[int, ...]) -> list[tensor]:
    """The indices of a box of ``shape`` whose first element has the index ``offsets``."""
    made = []
    for axis, (offset, size) in enumerate(zip(offsets, shape, strict=True)):
        line = reshape(arange(0, size), tuple(size if d == axis else 1 for d in range(len(shape))))
        made.append(broadcast_to_shape(add(line, offset), shape))
    return made


def rows(x_offsets: tensor, y_offset: Operand, block: tuple[int, ...], what: str) -> list[tensor]:
    """The indices of the rows ``x_offsets``, from column ``y_offset`` on, as wide as ``block``.

    Raises TypeMismatch: ``block`` is not one row, or ``x_offsets`` no tile of rank 1 of int16 or int32.
    """
    if len(block) != 2 or block[0] != 1:
        raise TypeMismatch(f"{what} needs a descriptor whose block is one row, got {list(block)}")
    if len(x_offsets.shape) != 1 or x_offsets.dtype not in (I16, I32):
        raise TypeMismatch(f"{what} takes a tile of rank 1 of int16 or int32 as row numbers, got {x_offsets.type}")
    count = x_offsets.shape[0]
    column = reshape(add(arange(0, block[1]), y_offset), (1, block[1]))
    shape = (count, block[1])
    return [broadcast_to_shape(reshape(x_offsets, (count, 1)), shape), broadcast_to_shape(column, shape)]
