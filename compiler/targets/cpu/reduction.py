"""Reductions and scans with any combining region."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.core import Block, Effect, Op, Value
from ...ir.types import Scalar
from ...llvm.typed import Typed, constant
from ...tile import elementwise as ops
from ...tile import reduction
from ...tile.map import MapElementwise
from . import elementwise
from .arena import Buffer
from .chunk import Coord, Coords, Vector, llvm_element, power_of_two_divisor, vector_axis
from .constants import constant_value
from .emission import Emission
from .formats import is_narrow
from .lower import CpuLowering
from .memory import when
from .nests import for_each_chunk, materialise, run_nest
from .program_order import run
from .rule_sets import buffers, statements

#: Accumulators that do not wait for each other; with two vectors each they hide the latency of an addition.
CHAINS = 2


def combine(low: CpuLowering, region: Block, args: Sequence[Typed]) -> list[Typed]:
    """The region applied lane by lane; the values it yields."""
    end = region.terminator
    yielded = end.operands if end is not None else []
    if _one_by_one(region):
        for arg, value in zip(region.args, args, strict=True):
            low.set_scalar(arg, value)
        run(low, region)
        return [low.scalar(v).value for v in yielded]
    lanes = max(a.lanes for a in args)
    env: dict[Value, Typed] = dict(zip(region.args, args, strict=True))

    def look_up(value: Value) -> Typed:
        held = env.get(value)
        return held if held is not None else low.scalar(value).value

    for op in region.ops:
        if op is end:
            break
        if isinstance(op, ops.Constant):
            env[op.result] = constant_value(op).value
            continue
        operands = [look_up(v) for v in op.operands]
        if any(o.lanes for o in operands):
            operands = [o if o.lanes else low.e.splat(o, lanes) for o in operands]
        if isinstance(op, ops.Min | ops.Max):  # in no order, so that nobody knows which of two zeros comes first
            env[op.results[0]] = elementwise.extremum(low.e, op, *operands, tells_zeros=False)
            continue
        env[op.results[0]] = elementwise.rules.find(op)(low.e, op, *operands)
    made = [look_up(v) for v in yielded]
    return [m if m.lanes == lanes else low.e.splat(m, lanes) for m in made]


def _one_by_one(region: Block) -> bool:
    """Whether elements are combined one after the other: there are branches, or assertions."""
    return _acts(region) or any(op.blocks for op in region.ops)


def _acts(region: Block) -> bool:
    return any(op.effect is Effect.WRITE or any(map(_acts, op.blocks)) for op in region.ops)


def neutral_element(op: reduction.Reduce) -> Typed | None:
    """What leaves the other operand as it is, for regions of one known operation on one operand; else None."""
    first = op.combine.ops[0]
    if len(op.inputs) != 1 or len(op.combine.ops) != 2 or set(first.operands) != set(op.combine.args):
        return None
    elem = op.inputs[0].type.elem
    if not isinstance(elem, Scalar) or is_narrow(elem) or elem.bits < 8:
        return None
    low, high = -math.inf, math.inf
    if elem.is_integer:
        low, high = elem.range
    silent = math.nan if elem.is_float else None  # min and max that skip NaN give back the other operand
    match first:
        case ops.Add():
            number: float | None = -0.0 if elem.is_float else 0
        case ops.Mul():
            number = 1
        case ops.Max():
            number = low if first.propagate_nan or silent is None else silent
        case ops.Min():
            number = high if first.propagate_nan or silent is None else silent
        case ops.Or() | ops.Xor():
            number = 0
        case ops.And():
            number = -1
        case _:
            number = None
    return None if number is None else constant(llvm_element(elem), number)


@statements(reduction.Reduce)
def reduce(low: CpuLowering, op: reduction.Reduce) -> None:
    """Vectors are accumulated along the axis; if it is the vectors' own, their lanes are combined at the end."""
    if not any(low.live.uses.get(r) for r in op.results) and not _acts(op.combine):
        return
    tile_shape = op.inputs[0].type.shape
    lanes = 1 if _one_by_one(op.combine) else min(low.lanes(tile_shape, v.type.elem) for v in op.inputs)
    buffers = [low.allocate(r) if r.type.rank else None for r in op.results]
    made = run_nest(
        low,
        [(v, True) for v in op.inputs],
        lanes,
        math.prod(tile_shape) // lanes,
        lambda emission: _reduction(emission, op, buffers),
    )
    for result, buffer in zip(op.results, buffers, strict=True):
        if buffer is None:
            low.set_scalar(result, made.pop(0))
        else:
            low.define_stored(result, buffer)


def _reduction(emission: Emission, op: reduction.Reduce, buffers: Sequence[Buffer | None]) -> list[Typed]:
    """The loops; returns the results that are scalars."""
    tile_shape, lanes = op.inputs[0].type.shape, emission.lanes
    along = vector_axis(tile_shape) == op.axis
    coords: dict[int, Coord] = {}
    for d, n in enumerate(tile_shape):
        if d == vector_axis(tile_shape) != op.axis:
            coords[d] = emission.open(n // lanes, lanes, stride=int(lanes > 1))[0]
        elif d != op.axis:
            coords[d] = emission.open(n)[0]
    outer = emission.nest.depth
    accumulated = _accumulate(emission, op, coords, lanes if along else 1)
    with emission.nest.at(outer):
        if along:
            accumulated = _across_lanes(emission.low, op.combine, accumulated)
    kept = tuple(c for d, c in sorted(coords.items()))
    if along:
        # What is left has one value per outer iteration.
        kept = tuple(Coord(c.base, 0, c.level, c.divisor) for c in kept)
    _write_results(emission, op, buffers, accumulated, kept)
    emission.unwind(len(coords))
    return [v for v, buffer in zip(accumulated, buffers, strict=True) if buffer is None]


def _accumulate(emission: Emission, op: reduction.Reduce, outer: dict[int, Coord], step: int) -> list[Typed]:
    """One vector per operand, combined along the axis."""
    low, rank = emission.low, op.inputs[0].type.rank
    count = op.inputs[0].type.shape[op.axis] // step
    lane_stride = int(step > 1)

    def chunks(coord: Coord) -> list[Typed]:
        coords = tuple(coord if d == op.axis else outer[d] for d in range(rank))
        return [emission.vector(v, coords) for v in op.inputs]

    neutral = neutral_element(op)
    if neutral is None or count == 1:
        first = chunks(Coord(Typed("i32", "0"), lane_stride, 0, 1 << 30))
        if count == 1:
            return first
        coord, inside = emission.open(count - 1, step, start=step, stride=lane_stride, carried=first)
        return emission.close(_combined(emission, op, inside, chunks(coord)))
    first = [low.e.splat(neutral, emission.lanes) if emission.lanes > 1 else neutral]
    chains = math.gcd(count, CHAINS)
    coord, inside = emission.open(count // chains, chains * step, stride=lane_stride, carried=first * chains)
    following: list[Typed] = []
    for chain in range(chains):
        at = emission.shifted(coord, Coord(Typed("i32", str(chain * step)), 0, 0, power_of_two_divisor(chain * step)))
        following += _combined(emission, op, [inside[chain]], chunks(at))
    total, *others = emission.close(following)
    for other in others:
        (total,) = _combined(emission, op, [total], [other])
    return [total]


def _combined(emission: Emission, op: reduction.Reduce, x: list[Typed], y: list[Typed]) -> list[Typed]:
    with emission.nest.at(emission.nest.depth):
        return combine(emission.low, op.combine, [*x, *y])


def _across_lanes(low: CpuLowering, region: Block, vectors: list[Typed]) -> list[Typed]:
    """Combine the halves until one lane is left."""
    lanes = vectors[0].lanes
    if not lanes:
        return vectors
    while lanes > 1:
        lanes //= 2
        lower = [low.e.shuffle(v, None, range(lanes)) for v in vectors]
        upper = [low.e.shuffle(v, None, range(lanes, 2 * lanes)) for v in vectors]
        vectors = combine(low, region, [*lower, *upper])
    return [low.e.extract(v, 0) for v in vectors]


def _write_results(
    emission: Emission,
    op: Op,
    buffers: Sequence[Buffer | None],
    values: Sequence[Typed],
    coords: Coords,
) -> None:
    level = emission.nest.depth
    for result, buffer, value in zip(op.results, buffers, values, strict=True):
        if buffer is None:
            continue
        if value.lanes:
            emission.write(buffer, result, Vector(value, level), coords)
        else:
            emission.write_one(buffer, result, value, coords)


@buffers(reduction.Scan)
def scanned(op: reduction.Scan) -> tuple[Value, ...]:
    """All that is added up."""
    return op.inputs


@statements(reduction.Scan)
def scan(low: CpuLowering, op: reduction.Scan) -> None:
    """Element after element along the axis; vectors along the minor dimension where that is another one."""
    tile_shape = op.inputs[0].type.shape
    axis, along = vector_axis(tile_shape), vector_axis(tile_shape) == op.axis
    lanes = min(low.lanes(tile_shape, v.type.elem) for v in op.inputs)
    if along or _one_by_one(op.combine):
        lanes = 1
    for value in op.inputs:
        materialise(low, value)
    buffers = [low.allocate(r) for r in op.results]
    emission = Emission(low, lanes, {})
    outer: dict[int, Coord] = {}
    for d, n in enumerate(tile_shape):
        if d == op.axis:
            continue
        if d == axis:
            outer[d] = emission.open(n // lanes, lanes, stride=int(lanes > 1))[0]
        else:
            outer[d] = emission.open(n)[0]

    def place(coord: Coord) -> Coords:
        return tuple(coord if d == op.axis else outer[d] for d in range(len(tile_shape)))

    count = tile_shape[op.axis]
    start = Coord(Typed("i32", str(count - 1 if op.reverse else 0)), 0, 0, 1)
    first = [emission.vector(v, place(start)) for v in op.inputs]
    _write_results(emission, op, buffers, first, place(start))
    if count > 1:
        coord, inside = emission.open(count - 1, 1, start=1, carried=first)
        if op.reverse:
            coord = _mirrored(emission, coord, count)
        values = [emission.vector(v, place(coord)) for v in op.inputs]
        with emission.nest.at(emission.nest.depth):
            following = combine(low, op.combine, [*inside, *values])
        _write_results(emission, op, buffers, following, place(coord))
        emission.close(following)
    for _ in outer:
        emission.close()
    emission.finish()
    for result, buffer in zip(op.results, buffers, strict=True):
        low.define_stored(result, buffer)


def _mirrored(emission: Emission, coord: Coord, count: int) -> Coord:
    if coord.base.name.isdigit():
        return Coord(Typed("i32", str(count - 1 - int(coord.base.name))), 0, 0, 1)
    with emission.nest.at(coord.level):
        base = emission.e.binary("sub nuw nsw", Typed("i32", str(count - 1)), coord.base)
    return Coord(base, 0, coord.level, 1)


@statements(reduction.Histogram)
def histogram(low: CpuLowering, op: reduction.Histogram) -> None:
    """Element by element: count it in the bin that it names."""
    buffer = low.allocate(op.result)
    size = ("i64", str(op.result.type.size * op.result.type.elem.bytes))
    low.function.call("void", "llvm.memset.p0.i64", [("ptr", low.base(buffer).name), ("i8", "0"), size, ("i1", "0")])

    def body(emission: Emission, coords: Coords) -> None:
        x = emission.vector(op.x, coords)
        mask = emission.vector(op.mask, coords) if op.mask is not None else None
        e = emission.e
        with emission.nest.at(emission.nest.depth):
            counts = e.compare("ult", x, constant(x.type, op.bins))
            if mask is not None:
                counts = e.binary("and", counts, mask)

            def count() -> None:
                place = e.offset(low.base(buffer), x, "i32")
                e.store(e.binary("add", e.load("i32", place, 4), Typed("i32", "1")), place, 4)

            when(low, counts, count)

    operands = [v for v in (op.x, op.mask) if v is not None]
    for_each_chunk(low, [(v, True) for v in operands], op.x.type.shape, 1, body)
    low.define_stored(op.result, buffer)


@statements(MapElementwise)
def map_elementwise(low: CpuLowering, op: MapElementwise) -> None:
    """Vectors of elements where the body is straight, else one element after the other."""
    tile_shape = op.inputs[0].type.shape
    types = [v.type for v in (*op.inputs, *op.results)]
    lanes = 1 if _one_by_one(op.body) else min(low.lanes(tile_shape, t.elem) for t in types)
    buffers = [low.allocate(r) for r in op.results]

    def body(emission: Emission, coords: Coords) -> None:
        values = [emission.vector(v, coords) for v in op.inputs]
        with emission.nest.at(emission.nest.depth):
            made = combine(low, op.body, values)
        _write_results(emission, op, buffers, made, coords)

    for_each_chunk(low, [(v, True) for v in op.inputs], tile_shape, lanes, body)
    for result, buffer in zip(op.results, buffers, strict=True):
        low.define_stored(result, buffer)
