"""Tiles that are other tiles seen from elsewhere: the coordinates change, nothing is computed."""

from __future__ import annotations

from ...ir.core import Op, Value
from ...llvm.typed import Typed
from ...tile import elementwise as ops
from ...tile import memory, shape
from .arena import Stored
from .chunk import ZERO, Affine, Chunk, Coord, Coords, Uniform, row_strides
from .constants import constant_value
from .emission import Emission
from .lower import CpuLowering
from .memory import load_chunk
from .nests import for_each_chunk, materialise, run_nest
from .rule_sets import buffers, statements, views


@views(ops.Constant)
def constant(emission: Emission, op: ops.Constant, value: Value, coords: Coords) -> Chunk:
    return constant_value(op)


@views(shape.Arange)
def arange(emission: Emission, op: shape.Arange, value: Value, coords: Coords) -> Chunk:
    (coord,) = coords
    base, divisor = coord.base, coord.divisor
    if op.start:
        with emission.nest.at(coord.level):
            base = emission.e.binary("add", base, Typed("i32", str(op.start)))
        divisor = min(divisor, op.start & -op.start)
    if coord.stride:
        return Affine(base, coord.stride, coord.level, divisor)
    return Uniform(base, coord.level, divisor=divisor)


@views(shape.Splat)
def splat(emission: Emission, op: shape.Splat, value: Value, coords: Coords) -> Chunk:
    return emission.low.scalar(op.x)


@views(shape.ExpandDims)
def expand_dims(emission: Emission, op: shape.ExpandDims, value: Value, coords: Coords) -> Chunk:
    return emission.chunk(op.x, coords[: op.axis] + coords[op.axis + 1 :])


@views(shape.Broadcast)
def broadcast(emission: Emission, op: shape.Broadcast, value: Value, coords: Coords) -> Chunk:
    sizes = op.x.type.shape
    moved = tuple(ZERO if n == 1 else c for n, c in zip(sizes, coords, strict=True))
    return emission.chunk(op.x, moved)


@views(shape.Permute)
def permute(emission: Emission, op: shape.Permute, value: Value, coords: Coords) -> Chunk:
    moved: list[Coord] = [ZERO] * len(coords)
    for coord, source in zip(coords, op.order, strict=True):
        moved[source] = coord
    return emission.chunk(op.x, tuple(moved))


@buffers(ops.Constant, shape.Arange, shape.Splat, shape.ExpandDims, shape.Broadcast, shape.Permute, memory.Load)
def nothing(op: Op) -> tuple[Value, ...]:
    """Its operands are read chunk by chunk, if at all."""
    return ()


def is_same_order(op: shape.Reshape) -> bool:
    """Whether the reshape only adds or removes dimensions of size 1."""
    return [n for n in op.x.type.shape if n > 1] == [n for n in op.shape if n > 1]


@buffers(shape.Reshape)
def reshaped(op: shape.Reshape) -> tuple[Value, ...]:
    """The operand, where its elements come in another order."""
    return () if is_same_order(op) else (op.x,)


@views(shape.Reshape)
def reshape(emission: Emission, op: shape.Reshape, value: Value, coords: Coords) -> Chunk:
    if is_same_order(op):
        longer = iter(c for c, n in zip(coords, op.shape, strict=True) if n > 1)
        moved = tuple(next(longer) if n > 1 else ZERO for n in op.x.type.shape)
        return emission.chunk(op.x, moved)
    terms = list(zip(coords, row_strides(op.shape), strict=True))
    return emission.read_flat(emission.low.in_memory(op, op.x), op.x.type.elem, terms)


@buffers(shape.Split)
def joined(op: shape.Split) -> tuple[Value, ...]:
    """Both halves."""
    return (op.x,)


@views(shape.Split)
def split(emission: Emission, op: shape.Split, value: Value, coords: Coords) -> Chunk:
    strides = row_strides(op.x.type.shape)[:-1]
    half = Coord(Typed("i32", str(value.index)), 0, 0, 1)
    terms = [*zip(coords, strides, strict=True), (half, 1)]
    return emission.read_flat(emission.low.in_memory(op, op.x), op.x.type.elem, terms)


@views(memory.Load)
def load(emission: Emission, op: memory.Load, value: Value, coords: Coords) -> Chunk:
    return load_chunk(emission, op, coords)


# Scalar results: views that end in one element ---------------------------------------------------------------


@statements(shape.Permute, shape.Broadcast, shape.Reshape)
def scalar_view(low: CpuLowering, op: shape.Permute | shape.Broadcast | shape.Reshape) -> None:
    """Rank 0 from a scalar or from a tile with one element."""
    low.scalars[op.results[0]] = one_element(low, op.x)


def one_element(low: CpuLowering, value: Value) -> Uniform:
    """The element of a tile of size 1."""
    if not value.type.rank:
        return low.scalar(value)

    def nest(emission: Emission) -> list[Typed]:
        chunk = emission.chunk(value, (ZERO,) * value.type.rank)
        emission.finish()
        return [emission.as_vector(chunk)]

    (made,) = run_nest(low, [(value, True)], 1, 1, nest)
    return Uniform(made, 0)


@statements(shape.Split)
def scalar_split(low: CpuLowering, op: shape.Split) -> None:
    """Two scalars from a tile of two elements."""
    stored = materialise(low, op.x)
    emission = Emission(low, 1, {})
    for index, result in enumerate(op.results):
        half = Coord(Typed("i32", str(index)), 0, 0, 1)
        low.scalars[result] = Uniform(emission.as_vector(emission.read_flat(stored, result.type.elem, [(half, 1)])), 0)
    emission.finish()


@statements(shape.Join)
def join(low: CpuLowering, op: shape.Join) -> None:
    """Chunks of both operands, lanes interleaved."""
    buffer = low.allocate(op.result)
    tile_shape, elem = op.lhs.type.shape, op.result.type.elem
    result = Stored(buffer, op.result.type.shape)

    def body(emission: Emission, coords: Coords) -> None:
        pair = [emission.vector(v, coords) for v in (op.lhs, op.rhs)]
        strides = [2 * n for n in row_strides(tile_shape)]
        pointer = emission.address(result.buffer, elem, list(zip(coords, strides, strict=True)))
        e = emission.e
        with emission.nest.at(emission.nest.depth):
            held = [emission.to_memory(x, elem) for x in pair]
            if emission.lanes == 1:
                e.store(held[0], pointer, elem.bytes)
                second = e.offset(pointer, Typed("i64", "1"), held[1].type)
                e.store(held[1], second, elem.bytes)
                return
            order = [i + half * emission.lanes for i in range(emission.lanes) for half in (0, 1)]
            e.store(e.shuffle(held[0], held[1], order), pointer, elem.bytes)

    lanes = low.lanes(tile_shape, elem)
    for_each_chunk(low, [(op.lhs, True), (op.rhs, True)], tile_shape, lanes, body)
    low.define_stored(op.result, buffer)
