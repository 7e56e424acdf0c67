"""Slices of arrays whose bounds only the running program knows, behind one tensor descriptor.

A ragged descriptor is that of an array of two or three dimensions with two dimensions of size 1 before them, the form
that Triton's has. Each access is one to the array that a slice ``[slice_off, slice_off + slice_size)`` is: the address
moves to the slice's first row, its rows are all there are, and what is outside of it is never touched. (Triton's own
descriptors reach that by addresses that wrap at 2^64, so an index before the slice reads what is there.)
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import TypeMismatch
from ..ir.types import I32, I64, Tile
from .arithmetic import add, as_tensor, cast_to, mul, sub
from .builtin import builtin
from .descriptors import tensor_descriptor
from .maths import maximum, minimum
from .tensor import Operand, tensor

#: Dimensions of size 1 before those of the array.
LEADING = 2


@builtin
def load_ragged(
    descriptor: tensor_descriptor, slice_off: Operand, slice_size: Operand, coords: object, ragged_dim: int = 0
) -> tensor:
    """The block whose first element is at index ``coords`` of the slice; outside of slice and array it is the padding.

    ``coords``: an i32 a dimension of the array; the slice is along ``ragged_dim``, which is not the last dimension.
    The block has the dimensions of the array. Raises TypeMismatch for another descriptor, dimension or number of
    coordinates.
    """
    result: tensor = _slice_of(descriptor, slice_off, slice_size, ragged_dim).load(coords)
    return result


@builtin
def store_ragged(
    descriptor: tensor_descriptor,
    slice_off: Operand,
    slice_size: Operand,
    coords: object,
    data: Operand,
    ragged_dim: int = 0,
) -> None:
    """Write ``data``, converted, where :func:`load_ragged` reads; what is outside of slice and array is left out."""
    _slice_of(descriptor, slice_off, slice_size, ragged_dim).store(coords, data)


@builtin
def atomic_add_ragged(
    descriptor: tensor_descriptor,
    slice_off: Operand,
    slice_size: Operand,
    coords: object,
    data: tensor,
    ragged_dim: int = 0,
) -> None:
    """Add ``data`` atomically, relaxed, where :func:`store_ragged` writes it."""
    _slice_of(descriptor, slice_off, slice_size, ragged_dim).atomic_add(coords, data)  # type: ignore[attr-defined]


def _slice_of(
    descriptor: tensor_descriptor, slice_off: Operand, slice_size: Operand, ragged_dim: object
) -> tensor_descriptor:
    """The descriptor of a slice, which is no longer than what the array has behind ``slice_off``."""
    shape = descriptor.block_type.shape if isinstance(descriptor, tensor_descriptor) else ()
    rank = len(shape) - LEADING
    if rank < 2 or any(size != 1 for size in shape[:LEADING]):
        shown = descriptor if isinstance(descriptor, tensor_descriptor) else repr(descriptor)
        raise TypeMismatch(
            f"{shown} is no ragged descriptor", hint="create_ragged_descriptor(array, block_shape) makes one"
        )
    if not isinstance(ragged_dim, int) or not -rank <= ragged_dim < rank or ragged_dim % rank == rank - 1:
        raise TypeMismatch(
            f"ragged_dim is {ragged_dim!r}, of an array of {rank} dimensions", hint=f"use 0 to {rank - 2}"
        )
    sizes, steps = list(descriptor.sizes[LEADING:]), descriptor.steps[LEADING:]
    place = ragged_dim % rank
    offset = cast_to(as_tensor(slice_off), I64)
    base = add(descriptor.base, mul(offset, cast_to(as_tensor(steps[place]), I64)))
    left = sub(cast_to(as_tensor(sizes[place]), I64), offset)
    rows = minimum(cast_to(as_tensor(slice_size), I64), maximum(left, 0))
    sizes[place] = cast_to(rows, I32)
    block = Tile(descriptor.block_type.elem, shape[LEADING:])
    return replace(descriptor, base=base, sizes=tuple(sizes), steps=steps, block_type=block)
