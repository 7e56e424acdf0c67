"""Sorting along one dimension, by bitonic networks: comparisons of elements a fixed distance apart.

A bitonic network sorts n elements in log2(n) stages; stage s merges neighbouring runs of 2**(s-1) elements, of which
every second one descends, by s comparisons over distances 2**(s-1), ..., 2, 1 (Batcher, "Sorting networks and their
applications", 1968). The largest k come out of a network that throws away the smaller half of each pair of sorted runs
of k (Shanbhag, Pirk, Madden, "Efficient top-k query processing on GPUs", 2018).

Floats are compared as integers of their width in the same order, so NaN is an element like any other and none is lost.
"""

from __future__ import annotations

from ..errors import TypeMismatch
from ..ir.types import I1, SCALARS, U8, Pointer, Scalar
from ..tile import elementwise as ew
from ..tile import movement
from ..tile.formats import largest_code
from . import combine
from .arithmetic import bit_and, bit_xor, cast, cast_to, constant, invert, shift_right
from .builtin import builtin
from .conditions import compare, where
from .reductions import comparable, index_along, reduce
from .shapes import reshape, shape_tuple
from .tensor import emit, tensor


def _dimension(x: tensor, dim: object, what: str) -> int:
    """The dimension ``dim`` of ``x``, its last one for None; raises TypeMismatch."""
    rank = len(x.shape)
    if not rank:
        raise TypeMismatch(f"{what} needs a tile, got {x.value.type}")
    (number,) = (rank - 1,) if dim is None else shape_tuple(dim, "dim")
    if not -rank <= number < rank:
        raise TypeMismatch(
            f"{what}: dim {number} is outside a tile of rank {rank}",
            hint=f"its dimensions are {', '.join(map(str, range(rank)))}",
        )
    return number % rank


@builtin
def flip(x: tensor, dim: int | None = None) -> tensor:
    """``x`` with its elements along ``dim`` (None: the last dimension) in reverse order; shape and type stay.

    Raises TypeMismatch for scalars, and for a dimension outside the rank.
    """
    axis = _dimension(x, dim, "flip")
    size = x.shape[axis]
    return x if size == 1 else emit(movement.Butterfly(x.value, axis, size - 1))


@builtin
def sort(x: tensor, dim: int | None = None, descending: bool = False) -> tensor:
    """``x`` with its elements along ``dim`` (None: the last dimension) in order; shape and type stay.

    Floats: -inf, negative numbers, -0.0, 0.0, positive numbers, inf, NaN, and the reverse with ``descending``. NaNs
    lose their sign. (In Triton, which only sorts the last dimension, a NaN or a zero of the other sign takes the
    place of numbers.) Equal integers cannot be told apart, so nothing is said of the order of equal elements.

    Raises TypeMismatch for scalars and pointers, and for a dimension outside the rank.
    """
    axis = _dimension(x, dim, "sort")
    return _from_keys(_sorted_runs(_keys(x, "sort"), axis, x.shape[axis], bool(descending)), x)


@builtin
def topk(x: tensor, k: int, dim: int | None = None, descending: bool = True) -> tensor:
    """The ``k`` largest elements along ``dim`` (None: the last dimension), the largest first; with ``descending=False``
    the ``k`` smallest, the smallest first.

    As what ``max`` and ``min`` give, some of the elements are f32 or i32 where they are below 32 bits; all of them
    stay as they are. ``k`` is a power of two, and the size of the dimension in the result. The order is that of
    ``sort``: a NaN is larger than every number. Raises TypeMismatch for scalars and pointers, for a dimension outside
    the rank, and for a ``k`` that is no power of two or more than there are.
    """
    axis = _dimension(x, dim, "topk")
    size = x.shape[axis]
    (count,) = shape_tuple(k, "k")
    if count <= 0 or count & (count - 1) or count > size:
        fitting = ", ".join(str(1 << i) for i in range(size.bit_length()))
        raise TypeMismatch(f"topk: k is {count}, of {size} elements", hint=f"k is one of {fitting}")
    keys = _keys(x, "topk")
    # The complement of a key turns the order around.
    runs = _sorted_runs(keys if descending else invert(keys), axis, count, True)
    while runs.shape[axis] > count:
        runs = _larger_halves(runs, axis, count)
        runs = _merged(runs, axis, count, True)
    best = _from_keys(runs if descending else invert(runs), x)
    return comparable(best) if count < size else best


@builtin
def bitonic_merge(x: tensor, dim: int | None = None, descending: bool = False) -> tensor:
    """``x`` in order along ``dim`` (None: the last dimension), where its elements rise and then fall, or the other way
    round: the last stage of ``sort``, whose order it is. Of other elements it makes some order.

    Raises TypeMismatch for scalars and pointers, and for a dimension outside the rank.
    """
    axis = _dimension(x, dim, "bitonic_merge")
    return _from_keys(_merged(_keys(x, "bitonic_merge"), axis, x.shape[axis], bool(descending)), x)


# Networks ----------------------------------------------------------------------------------------------------


def _sorted_runs(x: tensor, axis: int, length: int, descending: bool) -> tensor:
    """``x`` with each run of ``length`` elements in order; runs alternate, the last of all is ``descending``."""
    size = 2
    while size <= length:
        x = _merged(x, axis, size, descending)
        size *= 2
    return x


def _merged(x: tensor, axis: int, size: int, descending: bool) -> tensor:
    """Sorts runs of ``size`` elements of which each rises and then falls, or the other way round.

    Where there are several, every second one descends; a single one does if ``descending`` says so."""
    index = index_along(x, axis)
    distance = size // 2
    while distance:
        upper = bit_and(index, distance)
        if size < x.shape[axis]:
            # Neighbouring runs in opposite order are what the next merge takes.
            shift = (size // distance).bit_length() - 1
            upper = bit_xor(upper, bit_and(shift_right(index, shift), distance))
        other = emit(movement.Butterfly(x.value, axis, distance))
        smaller, larger = emit(ew.Min(x.value, other.value)), emit(ew.Max(x.value, other.value))
        ends = (smaller, larger) if descending and size == x.shape[axis] else (larger, smaller)
        x = where(compare(upper, 0, "ne"), *ends)
        distance //= 2
    return x


def _larger_halves(x: tensor, axis: int, length: int) -> tensor:
    """Of each pair of runs, one ascending, one descending, the larger ``length`` elements: they rise and then fall."""
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    pairs = reshape(x, (*before, size // (2 * length), 2, length, *after))
    return reshape(reduce(pairs, axis + 1, combine.larger), (*before, size // 2, *after))


# Keys --------------------------------------------------------------------------------------------------------


def _keys(x: tensor, what: str) -> tensor:
    """Integers in the order of the elements of ``x``; raises TypeMismatch for pointers."""
    if isinstance(x.dtype, Pointer):
        raise TypeMismatch(f"{what} takes numbers, got {x.value.type}", hint="cast the pointers with .to(tl.int64)")
    if x.dtype.is_stored_only:
        raise TypeMismatch(f"{what} of {x.dtype.spelling} does not exist", hint="cast with .to(tl.float16)")
    if x.dtype == I1:
        return cast_to(x, U8)
    if not x.dtype.is_float:
        return x
    bits = cast(x, _integer(x.dtype), bitcast=True)
    magnitude = bit_and(bits, (1 << (x.dtype.bits - 1)) - 1)
    largest = constant(largest_code(x.dtype), _integer(x.dtype))  # a NaN without its sign is more
    return _mirrored(where(compare(magnitude, largest, "gt"), magnitude, bits))


def _from_keys(keys: tensor, like: tensor) -> tensor:
    """The elements, of the type of ``like``, whose keys these are."""
    if not like.value.type.is_float:
        return cast_to(keys, like.dtype)
    return cast(_mirrored(keys), like.dtype, bitcast=True)


def _integer(type: Scalar) -> Scalar:
    return SCALARS[f"i{type.bits}"]


def _mirrored(bits: tensor) -> tensor:
    """Magnitudes of negative numbers inverted: floats, which have a sign and a magnitude, and integers in the same
    order. Its own inverse."""
    width = bits.dtype.bits
    return bit_xor(bits, bit_and(shift_right(bits, width - 1), (1 << (width - 1)) - 1))
