"""Tiles that are other tiles seen from elsewhere: the coordinates change, nothing is computed."""

from __future__ import annotations

from ...ir.core import Value
from ...llvm.typed import Typed
from ...tile import elementwise as ops
from ...tile import memory, shape
from .chunk import ZERO, Affine, Chunk, Coord, Uniform
from .constants import constant_value
from .emission import Coords, Emission, row_strides
from .lower import views
from .memory import load_chunk
from .plan import is_same_order


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


@views(shape.Reshape)
def reshape(emission: Emission, op: shape.Reshape, value: Value, coords: Coords) -> Chunk:
    if is_same_order(op):
        longer = iter(c for c, n in zip(coords, op.shape, strict=True) if n > 1)
        moved = tuple(next(longer) if n > 1 else ZERO for n in op.x.type.shape)
        return emission.chunk(op.x, moved)
    terms = list(zip(coords, row_strides(op.shape), strict=True))
    return emission.read_flat(emission.low.stored[op.x], op.x.type.elem, terms)


@views(shape.Split)
def split(emission: Emission, op: shape.Split, value: Value, coords: Coords) -> Chunk:
    strides = row_strides(op.x.type.shape)[:-1]
    half = Coord(Typed("i32", str(value.index)), 0, 0, 1)
    terms = [*zip(coords, strides, strict=True), (half, 1)]
    return emission.read_flat(emission.low.stored[op.x], op.x.type.elem, terms)


@views(memory.Load)
def load(emission: Emission, op: memory.Load, value: Value, coords: Coords) -> Chunk:
    return load_chunk(emission, op, coords)
