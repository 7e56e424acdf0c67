"""Elements that change places, read out of the buffer that holds the operand."""

from __future__ import annotations

from ...ir.core import Value
from ...ir.types import Element
from ...llvm.typed import Typed
from ...tile import movement
from .arena import Stored
from .chunk import Affine, Chunk, Coord, Coords, Uniform, Vector, memory_element, power_of_two_divisor, row_strides
from .emission import Emission
from .rule_sets import buffers, views


@buffers(movement.Butterfly)
def crossed(op: movement.Butterfly) -> tuple[Value, ...]:
    """What is moved."""
    return (op.x,)


@views(movement.Butterfly)
def butterfly(emission: Emission, op: movement.Butterfly, value: Value, coords: Coords) -> Chunk:
    """An aligned chunk along the axis is another aligned chunk, with its lanes in another order."""
    stored, elem = emission.low.in_memory(op, op.x), op.x.type.elem
    coord, lanes = coords[op.axis], emission.lanes
    if not coord.stride:
        return emission.read(stored, elem, _moved(emission, op, coords, op.distance))
    if coord.stride != 1 or coord.divisor % lanes:
        return _one_by_one(emission, op, stored, coords)
    inside = op.distance & (lanes - 1)
    chunk = emission.read(stored, elem, _moved(emission, op, coords, op.distance - inside))
    if not inside or isinstance(chunk, Uniform):
        return chunk
    vector = emission.as_vector(chunk)
    with emission.nest.at(chunk.level):
        return Vector(emission.e.shuffle(vector, None, [lane ^ inside for lane in range(lanes)]), chunk.level)


@buffers(movement.Gather)
def gathered(op: movement.Gather) -> tuple[Value, ...]:
    """What the indices point into."""
    return (op.src,)


@views(movement.Gather)
def gather(emission: Emission, op: movement.Gather, value: Value, coords: Coords) -> Chunk:
    """One element, a vector of neighbours along another axis, or elements from all over the buffer."""
    stored, elem = emission.low.in_memory(op, op.src), op.src.type.elem
    index = emission.chunk(op.index, coords)
    last = op.src.type.shape[op.axis] - 1
    if isinstance(index, Uniform):
        with emission.nest.at(index.level):
            base = emission.e.binary("and", index.value, Typed("i32", str(last)))
        there = Coord(base, 0, index.level, 1)
        return emission.read(stored, elem, (*coords[: op.axis], there, *coords[op.axis + 1 :]))
    vector = emission.as_vector(index)
    with emission.nest.at(index.level):
        inside = emission.e.binary("and", vector, emission.e.splat(Typed("i32", str(last)), emission.lanes))
    return gather_along(emission, stored, elem, coords, op.axis, Vector(inside, index.level))


def _moved(emission: Emission, op: movement.Butterfly, coords: Coords, distance: int) -> Coords:
    """``coords`` with ``distance`` XORed into the base along the axis; lanes stay in order."""
    coord = coords[op.axis]
    if not distance:
        return coords
    if coord.base.name.isdigit():
        base = Typed("i32", str(int(coord.base.name) ^ distance))
    else:
        with emission.nest.at(coord.level):
            base = emission.e.binary("xor", coord.base, Typed("i32", str(distance)))
    divisor = min(coord.divisor, power_of_two_divisor(distance))
    moved = Coord(base, coord.stride, coord.level, divisor)
    return (*coords[: op.axis], moved, *coords[op.axis + 1 :])


def _one_by_one(emission: Emission, op: movement.Butterfly, stored: Stored, coords: Coords) -> Chunk:
    """Lanes that are not an aligned chunk: each computes its own index."""
    coord = coords[op.axis]
    index = emission.as_vector(Affine(coord.base, coord.stride, coord.level))
    with emission.nest.at(coord.level):
        steps = emission.e.splat(Typed("i32", str(op.distance)), emission.lanes)
        index = emission.e.binary("xor", index, steps)
    return gather_along(emission, stored, op.x.type.elem, coords, op.axis, Vector(index, coord.level))


def gather_along(emission: Emission, stored: Stored, elem: Element, coords: Coords, axis: int, index: Vector) -> Vector:
    """The elements of ``stored`` at ``coords``, but at ``index`` (i32 lanes) along ``axis``."""
    e, lanes = emission.e, emission.lanes
    strides = row_strides(stored.shape)
    around = [(c, s) for d, (c, s) in enumerate(zip(coords, strides, strict=True)) if d != axis]
    level = max([index.level, *(c.level for c, _ in around)])
    pointer = emission.address(stored.buffer, elem, around)
    with emission.nest.at(level):
        flat = e.binary("mul nuw nsw", index.value, e.splat(Typed("i32", str(strides[axis])), lanes))
        steps = sum(c.stride * s for c, s in around)
        if steps:
            inside = ", ".join(f"i32 {lane * steps}" for lane in range(lanes))
            flat = e.binary("add nuw nsw", flat, Typed(flat.type, f"<{inside}>"))
        return Vector(emission.gather(e.offset(pointer, flat, memory_element(elem)), elem, None, None), level)
