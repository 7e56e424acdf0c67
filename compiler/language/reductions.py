"""Reductions, scans and histograms. The combining functions are written in the language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from ..errors import TypeMismatch
from ..ir.core import Block
from ..ir.types import F32, I1, I32, U32, Scalar, Tile
from ..tile import reduction
from . import combine, shapes
from .arithmetic import broadcast_to_shape, cast_to, promote_bf16
from .builtin import builtin
from .context import current
from .promotion import scalar_type
from .shapes import arange, expand_dims
from .tensor import emit, emit_all, tensor

Inputs = tensor | Sequence[tensor]


def _combine(inputs: tuple[tensor, ...], function: object) -> Block:
    block = Block()
    args = [block.add_argument(Tile(x.dtype)) for x in (*inputs, *inputs)]
    current().region(function, args, block)
    return block


def _inputs(x: Inputs) -> tuple[tensor, ...]:
    parts = tuple(x) if isinstance(x, tuple | list) else (x,)
    if not parts:
        raise TypeMismatch("a reduction needs tiles, got none")
    for part in parts:
        if not isinstance(part, tensor) or not part.shape:
            shown = part.value.type if isinstance(part, tensor) else repr(part)
            raise TypeMismatch(f"a reduction needs tiles, got {shown}")
    return parts


@overload
def reduce(input: tensor, axis: int | None, combine_fn: object, keep_dims: bool = False) -> tensor: ...
@overload
def reduce(
    input: Sequence[tensor], axis: int | None, combine_fn: object, keep_dims: bool = False
) -> tuple[tensor, ...]: ...
@builtin
def reduce(input: Inputs, axis: int | None, combine_fn: object, keep_dims: bool = False) -> tensor | tuple[tensor, ...]:
    """Combine all elements along ``axis`` (all axes for None) with the jit function ``combine_fn``.

    ``combine_fn(a..., b...)`` must be associative and commutative; with several inputs, which have one shape, it
    returns a tuple. Results keep the element types and lose the dimension (``keep_dims``: it has size 1); a negative
    ``axis`` counts from the end. Raises TypeMismatch for scalar tensors, and for an axis outside the rank.
    """
    parts = _inputs(input)
    shape = parts[0].shape
    if axis is None:
        parts = tuple(shapes.ravel(p) for p in parts)
    place = 0 if axis is None else shapes._axis(axis, len(shape))
    block = _combine(parts, combine_fn)
    results = emit_all(reduction.Reduce(tuple(p.value for p in parts), place, block))
    if keep_dims:
        kept = range(len(shape)) if axis is None else [place]
        results = tuple(expand_dims(r, list(kept)) for r in results)
    return results if isinstance(input, tuple | list) else results[0]


@overload
def associative_scan(input: tensor, axis: int, combine_fn: object, reverse: bool = False) -> tensor:
    """Of one input."""


@overload
def associative_scan(
    input: Sequence[tensor], axis: int, combine_fn: object, reverse: bool = False
) -> tuple[tensor, ...]:
    """Of several inputs."""


@builtin
def associative_scan(
    input: Inputs, axis: int, combine_fn: object, reverse: bool = False
) -> tensor | tuple[tensor, ...]:
    """Inclusive prefix combination along ``axis``; ``reverse`` starts at the end.

    ``combine_fn(a..., b...)`` must be associative; with several inputs, which have one shape, it returns a tuple.
    Shapes and element types stay; a negative ``axis`` counts from the end. Raises TypeMismatch for scalars, and for an
    axis outside the rank.
    """
    parts = _inputs(input)
    place = shapes._axis(axis, len(parts[0].shape))
    block = _combine(parts, combine_fn)
    results = emit_all(reduction.Scan(tuple(p.value for p in parts), place, reverse, block))
    return results if isinstance(input, tuple | list) else results[0]


@builtin
def widen_integers(x: tensor) -> tensor:
    """Integers below 32 bits as 32 bits of the same sign (booleans are unsigned): sums of them would overflow."""
    if isinstance(x.dtype, Scalar) and x.dtype.is_integer and x.dtype.bits < 32:
        return cast_to(x, I32 if x.dtype.is_signed else U32)
    return x


def comparable(x: tensor) -> tensor:
    """Numbers below 32 bits as f32 or i32, in which every one of them can be written."""
    if isinstance(x.dtype, Scalar) and x.dtype.bits < 32:
        return cast_to(x, F32 if x.dtype.is_float else I32)
    return x


@builtin
def index_along(x: tensor, axis: int | None) -> tensor:
    """i32 positions along ``axis`` in the shape of ``x``, row-major ones for None.

    Raises TypeMismatch for an axis outside the rank.
    """
    if axis is None:
        return shapes.reshape(arange(0, x.numel), x.shape)
    place = shapes._axis(axis, len(x.shape))
    positions = arange(0, x.shape[place])
    for d in range(len(x.shape)):
        if d != place:
            positions = expand_dims(positions, d)
    return broadcast_to_shape(positions, x.shape)


@builtin
def sum(  # noqa: A001 -- the language's own name
    input: tensor, axis: int | None = None, keep_dims: bool = False, dtype: Scalar | None = None
) -> tensor:
    """Sum along ``axis`` (all axes for None), which disappears or, with ``keep_dims``, has size 1.

    Integers below 32 bits are summed in 32 bits of the same sign (int1 in uint32), anything else in its own type;
    ``dtype`` converts the elements first. Raises TypeMismatch for scalar tensors, and for an axis outside the rank.
    """
    x = cast_to(input, scalar_type(dtype)) if dtype is not None else widen_integers(input)
    return reduce(x, axis, combine.add, keep_dims)


def _need_integers(x: tensor, what: str) -> None:
    if not x.value.type.is_integer:
        raise TypeMismatch(f"{what} takes integers, got {x.value.type}")


@builtin
def xor_sum(input: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """Exclusive or of integers along ``axis`` (all axes for None), in their own type.

    Raises TypeMismatch for floats.
    """
    _need_integers(input, "xor_sum")
    return reduce(input, axis, combine.xor, keep_dims)


@builtin
def reduce_or(input: tensor, axis: int, keep_dims: bool = False) -> tensor:
    """Bitwise or of integers along ``axis`` (all axes for None), in their own type; raises TypeMismatch for floats."""
    _need_integers(input, "reduce_or")
    return reduce(input, axis, combine.or_, keep_dims)


def _extremum(
    input: tensor, axis: int | None, indices: bool, keep_dims: bool, plain: object, indexed: object
) -> tensor | tuple[tensor, ...]:
    if not indices:
        return reduce(comparable(input), axis, plain, keep_dims)
    x = promote_bf16(input)
    return reduce((x, index_along(x, axis)), axis, indexed, keep_dims)


@overload
def max(
    input: tensor,
    axis: int | None = None,
    return_indices: Literal[False] = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> tensor:
    """The element."""


@overload
def max(
    input: tensor,
    axis: int | None = None,
    *,
    return_indices: Literal[True],
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> tuple[tensor, tensor]:
    """The element and its position."""


@builtin
def max(  # noqa: A001 -- the language's own name
    input: tensor,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> tensor | tuple[tensor, ...]:
    """Largest element along ``axis`` (all axes for None); a number wins over NaN.

    f32 or i32 for elements below 32 bits. With ``return_indices`` the element (bf16 as f32, others in their own type)
    and its i32 position, the first of equal ones whatever ``return_indices_tie_break_left`` says; for all axes the
    position is row-major.
    """
    return _extremum(input, axis, return_indices, keep_dims, combine.larger, combine.larger_first)


@overload
def min(
    input: tensor,
    axis: int | None = None,
    return_indices: Literal[False] = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> tensor:
    """The element."""


@overload
def min(
    input: tensor,
    axis: int | None = None,
    *,
    return_indices: Literal[True],
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> tuple[tensor, tensor]:
    """The element and its position."""


@builtin
def min(  # noqa: A001 -- the language's own name
    input: tensor,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> tensor | tuple[tensor, ...]:
    """Smallest element along ``axis`` (all axes for None); a number wins over NaN.

    f32 or i32 for elements below 32 bits. With ``return_indices`` the element (bf16 as f32, others in their own type)
    and its i32 position, the first of equal ones whatever ``return_indices_tie_break_left`` says; for all axes the
    position is row-major.
    """
    return _extremum(input, axis, return_indices, keep_dims, combine.smaller, combine.smaller_first)


@builtin
def argmax(input: tensor, axis: int, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """Position of the largest element along ``axis``, i32: the first of equal ones. A number wins over NaN.

    ``tie_break_left`` is accepted and changes nothing.
    """
    x = promote_bf16(input)
    pair = (x, index_along(x, axis))
    return reduce(pair, axis, combine.larger_first, keep_dims)[1]


@builtin
def argmin(input: tensor, axis: int, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """Position of the smallest element along ``axis``, i32: the first of equal ones. A number wins over NaN.

    ``tie_break_left`` is accepted and changes nothing.
    """
    x = promote_bf16(input)
    pair = (x, index_along(x, axis))
    return reduce(pair, axis, combine.smaller_first, keep_dims)[1]


@builtin
def histogram(input: tensor, num_bins: int, mask: tensor | None = None) -> tensor:
    """How many elements of ``input``, integers of rank 1, equal 0, 1, ..., ``num_bins`` - 1: int32 of shape [num_bins].

    Others do not count, nor do those for which ``mask``, int1 that broadcasts to the shape of ``input``, is false.
    Raises TypeMismatch for other ranks, for floats, and for a ``num_bins`` that is not a power of two.
    """
    if len(input.shape) != 1 or not input.value.type.is_integer:
        raise TypeMismatch(f"histogram takes integers of rank 1, got {input.type}", hint="tl.ravel(x) has rank 1")
    (bins,) = shapes.shape_tuple(num_bins, "num_bins")
    if bins <= 0 or bins & (bins - 1):
        raise TypeMismatch(
            f"histogram: num_bins is {bins}, which is not a power of two",
            hint=f"use {1 << abs(bins - 1).bit_length()}; the bins that are not wanted stay empty",
        )
    if mask is not None:
        if mask.dtype != I1:
            raise TypeMismatch(f"histogram: the mask is int1, got {mask.type}")
        mask = broadcast_to_shape(mask, input.shape)
    wide = cast_to(input, I32) if input.dtype.bits < 32 else input
    return emit(reduction.Histogram(wide.value, bins, mask.value if mask is not None else None))


@builtin
def cumsum(input: tensor, axis: int = 0, reverse: bool = False, dtype: Scalar | None = None) -> tensor:
    """Inclusive prefix sums along ``axis`` in the shape of ``input``; ``reverse`` starts at the end.

    bf16 is summed in f32, integers below 32 bits in 32 bits of the same sign; ``dtype`` converts the elements first.
    """
    x = promote_bf16(input)
    x = cast_to(x, scalar_type(dtype)) if dtype is not None else widen_integers(x)
    return associative_scan(x, axis, combine.add, reverse)


@builtin
def cumprod(input: tensor, axis: int = 0, reverse: bool = False) -> tensor:
    """Inclusive prefix products along ``axis``: of bf16 in f32, of anything else in its own type.

    ``reverse`` starts at the end.
    """
    return associative_scan(promote_bf16(input), axis, combine.multiply, reverse)
