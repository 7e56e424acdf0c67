"""Making tiles, changing their shape, and picking elements of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import TypeMismatch
from ..ir.types import I1, I32, I64, U64, Pointer, Tile
from ..printable import shown
from ..tile import elementwise as ew
from ..tile import movement, program
from ..tile import shape as sh
from .arithmetic import as_tensor, broadcast_all, broadcast_to_shape, cast_to, constant, is_pointer
from .builtin import builtin
from .constexpr import unwrap
from .promotion import fits, scalar_type
from .tensor import Operand, emit, emit_all, tensor
from .typed import Typed

Shape = Sequence[int]


def shape_tuple(shape: object, what: str = "shape") -> tuple[int, ...]:
    """A shape from ints or a sequence of ints known at compile time; raises TypeMismatch."""
    items = tuple(map(unwrap, shape if isinstance(shape, tuple | list) else (shape,)))
    numbers = tuple(int(n) for n in items if isinstance(n, int))  # booleans are numbers, as in Python
    if len(numbers) < len(items):
        wrong = next(n for n in items if not isinstance(n, int))
        raise TypeMismatch(
            f"{what} must be made of integers known at compile time, got {shown(wrong)}",
            hint="annotate the parameter as tl.constexpr" if isinstance(wrong, tensor) else "give it an int",
        )
    return numbers


def _axis(axis: object, rank: int) -> int:
    (number,) = shape_tuple(axis, "axis")
    if not -rank <= number < rank:
        raise TypeMismatch(
            f"invalid axis {number}: it is outside a tile of rank {rank}",
            hint=f"its axes are {', '.join(map(str, range(rank)))}" if rank else None,
        )
    return number % rank


def _grid_axis(axis: object) -> int:
    (number,) = shape_tuple(axis, "the axis of a grid")
    if number not in (0, 1, 2):
        raise TypeMismatch(f"program_id axis must be 0, 1, or 2 but got {number}")
    return number


@builtin
def program_id(axis: int) -> tensor:
    """Index of this program along ``axis`` (0, 1 or 2), a scalar i32; raises TypeMismatch for another axis."""
    return emit(program.ProgramId(_grid_axis(axis)))


@builtin
def num_programs(axis: int) -> tensor:
    """Number of programs along ``axis`` (0, 1 or 2), a scalar i32; raises TypeMismatch for another axis."""
    return emit(program.NumPrograms(_grid_axis(axis)))


@builtin
def arange(start: int, end: int) -> tensor:
    """i32 values start, start+1, ..., end-1, known at compile time.

    Raises TypeMismatch unless their number is a power of two.
    """
    lo, hi = shape_tuple((start, end), "the bounds of arange")
    return emit(sh.Arange(lo, hi))


@builtin
def full(shape: Shape, value: Operand, dtype: object) -> tensor:
    """A tile of ``shape`` filled with ``value`` (a number or a scalar tensor) as ``dtype``.

    Integers wrap, 0xFF is -1 as int8, if 64 bits of the same signedness hold them. Raises TypeMismatch: a dimension
    that is not a power of two, more than 2**20 elements, another integer out of range, a fraction for integers.
    """
    type, dims = scalar_type(dtype), shape_tuple(shape)
    if isinstance(value, tensor):
        return broadcast_to_shape(cast_to(value, type), dims)
    if type.is_float or type == I1:
        return constant(value, type, dims)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, Typed):  # a scalar, which is converted
        return broadcast_to_shape(cast_to(as_tensor(value), type), dims)
    if isinstance(value, int) and fits(value, I64 if type.is_signed else U64):
        value = type.wrap(value)
    return constant(value, type, dims)


@builtin
def zeros(shape: Shape, dtype: object) -> tensor:
    """A tile of zeros; dimensions are powers of two, at most 2**20 elements in all, else TypeMismatch."""
    return constant(0, scalar_type(dtype), shape_tuple(shape))


@builtin
def zeros_like(input: tensor) -> tensor:
    """Zeros in the shape and type of ``input``."""
    if isinstance(input.dtype, Pointer):
        return emit(ew.Constant(0, Tile(input.dtype, input.shape)))
    return constant(0, input.dtype, input.shape)


@builtin
def expand_dims(input: Operand, axis: int | Sequence[int]) -> tensor:
    """``input`` with dimensions of size 1 inserted so that they stand at ``axis`` in the result.

    Negative axes count from the end of the result. Raises TypeMismatch for an axis outside its rank, and for two
    axes that are one.
    """
    input = as_tensor(input)
    places = shape_tuple(axis, "axis")
    rank = len(input.shape) + len(places)
    axes = sorted(_axis(p, rank) for p in places)
    if len(set(axes)) < len(axes):
        raise TypeMismatch(f"duplicate axes, normalized axes = {axes}", hint="each new dimension has its own place")
    for place in axes:
        input = emit(sh.ExpandDims(input.value, place)) if input.shape else emit(sh.Splat(input.value, (1,)))
    return input


@builtin
def broadcast(input: Operand, other: Operand) -> tuple[tensor, ...]:
    """Both operands in their common shape, each in its own type; raises TypeMismatch where there is none."""
    return tuple(broadcast_all(as_tensor(input), as_tensor(other)))


@builtin
def broadcast_to(input: Operand, *shape: int | Shape) -> tensor:
    """``input`` repeated up to ``shape`` (ints or one tuple): dimensions of size 1 grow, new ones come in front.

    Raises TypeMismatch where that is impossible.
    """
    input, wanted = as_tensor(input), _variadic(shape)
    if len(input.shape) > len(wanted):
        raise TypeMismatch(f"cannot broadcast {list(input.shape)} to {list(wanted)}")
    return broadcast_to_shape(input, wanted)


def _variadic(shape: tuple[int | Shape, ...]) -> tuple[int, ...]:
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        return shape_tuple(shape[0])
    return shape_tuple(shape)


@builtin
def reshape(input: tensor, *shape: int | Shape, can_reorder: bool = False) -> tensor:
    """The same elements in row-major order in another shape (ints or one tuple); a scalar is repeated up to it.

    ``can_reorder`` permits any order and is not used. Raises TypeMismatch where the number of elements differs.
    """
    wanted = _variadic(shape)
    if not input.shape:
        return broadcast_to_shape(input, wanted)
    return input if input.shape == wanted else emit(sh.Reshape(input.value, wanted))


@builtin
def view(input: tensor, *shape: int | Shape) -> tensor:
    """Like reshape, without ``can_reorder``."""
    return reshape(input, *shape)


@builtin
def ravel(x: tensor, can_reorder: bool = False) -> tensor:
    """All elements in one dimension, in row-major order; a scalar gives shape [1]. ``can_reorder`` as in reshape."""
    return reshape(x, (x.numel,))


@builtin
def permute(input: tensor, *dims: int | Shape) -> tensor:
    """Result dimension d is operand dimension dims[d]; ``dims`` are ints or one tuple.

    Raises TypeMismatch unless they are an order of all dimensions.
    """
    return emit(sh.Permute(input.value, _variadic(dims)))


@builtin
def trans(input: tensor, *dims: int | Shape) -> tensor:
    """The transpose: the last two dimensions swapped, or ``dims`` as in permute.

    Raises TypeMismatch for a rank below 2 without ``dims``.
    """
    if dims:
        return permute(input, *dims)
    rank = len(input.shape)
    if rank < 2:
        raise TypeMismatch(f"trans needs rank 2 or more, got {input.value.type}")
    return emit(sh.Permute(input.value, (*range(rank - 2), rank - 1, rank - 2)))


@builtin
def join(a: Operand, b: Operand) -> tensor:
    """A new last dimension of size 2 that holds a and b in their common shape; two scalars give shape [2].

    Of a signed and an unsigned type of one width that of ``a`` is taken. Raises TypeMismatch where the element types
    differ otherwise, or the shapes do not broadcast.
    """
    a, b = broadcast_all(as_tensor(a), as_tensor(b))
    if all(x.value.type.is_integer for x in (a, b)) and a.value.type.scalar.bits == b.value.type.scalar.bits:
        b = cast_to(b, a.dtype)
    if a.dtype != b.dtype:
        raise TypeMismatch(f"join needs one element type, got {a.dtype.code} and {b.dtype.code}")
    if not a.shape:
        a, b = broadcast_to_shape(a, (1,)), broadcast_to_shape(b, (1,))
        return emit(sh.Reshape(emit(sh.Join(a.value, b.value)).value, (2,)))
    return emit(sh.Join(a.value, b.value))


@builtin
def split(a: tensor) -> tuple[tensor, ...]:
    """The two halves of the last dimension, which has size 2 and disappears; shape [2] gives two scalars.

    The inverse of join. Raises TypeMismatch for another size.
    """
    if a.shape == (2,):
        halves = emit_all(sh.Split(emit(sh.Reshape(a.value, (1, 2))).value))
        return tuple(unsplat(h) for h in halves)
    return emit_all(sh.Split(a.value))


@builtin
def interleave(a: Operand, b: Operand) -> tensor:
    """The elements of a and b in turn along the last dimension, which doubles; raises TypeMismatch as join does."""
    both = join(a, b)
    if len(both.shape) == 1:
        return both
    return reshape(both, (*both.shape[:-2], both.shape[-2] * 2))


@builtin
def cat(input: tensor, other: tensor, can_reorder: bool = False, dim: int = 0) -> tensor:
    """``input`` followed by ``other`` along ``dim``, which doubles; ``can_reorder`` is accepted and not used.

    Raises TypeMismatch where shapes or element types differ.
    """
    if input.shape != other.shape:
        raise TypeMismatch(f"cat needs one shape, got {list(input.shape)} and {list(other.shape)}")
    rank, axis = len(input.shape), _axis(dim, len(input.shape))
    both = join(input, other)
    order = (*range(axis), rank, *range(axis, rank))
    shape = (*input.shape[:axis], input.shape[axis] * 2, *input.shape[axis + 1 :])
    return reshape(permute(both, order), shape)


@builtin
def gather(src: tensor, index: tensor, axis: int) -> tensor:
    """The elements of ``src`` at the coordinates of ``index``, but at the positions it holds along ``axis``.

    Of rank 2 along axis 1: result[i, j] = src[i, index[i, j]]. The result has the shape of ``index``, which may differ
    from that of ``src`` along ``axis`` only. Positions count modulo the size of the axis, so that no position is
    outside (in Triton such elements are undefined). Raises TypeMismatch for scalars, indices that are not integers,
    shapes that do not fit, and an axis outside the rank.
    """
    if not src.shape or len(index.shape) != len(src.shape):
        raise TypeMismatch(f"gather needs tiles of one rank, got {src.type} and indices {index.type}")
    if not index.value.type.is_integer or index.dtype == I1:
        raise TypeMismatch(f"gather needs integer indices, got {index.type}")
    place = _axis(axis, len(src.shape))
    for d, (have, wanted) in enumerate(zip(src.shape, index.shape, strict=True)):
        if d != place and have != wanted:
            raise TypeMismatch(
                f"gather along axis {place}: {list(src.shape)} and indices {list(index.shape)} differ along axis {d}",
                hint="broadcast the indices with tl.broadcast_to",
            )
    return emit(movement.Gather(src.value, cast_to(index, I32).value, place))


@builtin
def squeeze(x: tensor, dim: int) -> tensor:
    """``x`` without dimension ``dim``; raises TypeMismatch unless that has size 1."""
    axis = _axis(dim, len(x.shape))
    if x.shape[axis] != 1:
        raise TypeMismatch(f"dimension {axis} of {x.value.type} does not have size 1")
    return _reshape_or_scalar(x, x.shape[:axis] + x.shape[axis + 1 :])


@builtin
def unsqueeze(x: Operand, dim: int) -> tensor:
    """``x`` with a dimension of size 1 at ``dim`` of the result; a negative one counts from its end."""
    return expand_dims(x, dim)


@builtin
def unsplat(x: tensor) -> tensor:
    """The only element of a tile of size 1, as a scalar; raises TypeMismatch for another size."""
    if x.numel != 1:
        raise TypeMismatch(f"needs exactly one element, got {x.value.type}")
    return _reshape_or_scalar(x, ())


def _reshape_or_scalar(x: tensor, shape: tuple[int, ...]) -> tensor:
    return x if x.shape == shape else emit(sh.Reshape(x.value, shape))


def index(x: tensor, key: object) -> tensor:
    """``x[key]``: only None (a new dimension) and ``:`` (an old one) are indices of a tile; else TypeMismatch.

    As in Triton a scalar may be indexed with ``:``, which then stands for nothing: ``scalar[:, None]`` has shape (1,).
    """
    items = key if isinstance(key, tuple | list) else (key,)
    if not x.shape and None in items:
        items = tuple(item for item in items if item != slice(None))
    axis = 0
    for place, item in enumerate(items):
        if item is None:
            x = expand_dims(x, place)
        elif isinstance(item, slice) and item == slice(None):
            axis += 1
        elif is_pointer(x):
            raise TypeMismatch(
                f"unsupported tensor index {shown(item)}: pointers are not indexed",
                hint="use tl.load(pointer + offset)",
            )
        else:
            raise TypeMismatch(
                f"unsupported tensor index {shown(item)}: a tile is indexed by ':' and None only",
                hint="x[:, None] adds a dimension; to pick elements, load them through pointers",
            )
    if axis > len(x.shape):
        raise TypeMismatch(f"too many indices for {x.value.type}")
    return x
