"""Loop-carried pointer and index tiles reduced to a start and a carried scalar offset."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.core import Block, Op, Value
from ...ir.types import I64, Scalar, Tile
from ...tile import control, elementwise, shape


@dataclass(slots=True)
class _Rewrite:
    """The parts of the new loop."""

    inits: list[Value]
    yields: list[Value]
    body: Block
    before: list[Op] = field(default_factory=list)
    starts: list[Op] = field(default_factory=list)
    sums: list[Op] = field(default_factory=list)


def offset_carried_tiles(block: Block, op: control.For, replaced: dict[Value, Value]) -> tuple[control.For, list[Op]]:
    """``p += step`` in a loop, p a tile and step a scalar -> p = start + offset, offset += step.

    Otherwise a tile of pointers would live in memory and hide that its rows are contiguous. Appends what the new loop
    needs to ``block``; returns the loop and what must follow it. ``replaced`` receives the new definitions.
    """
    end = op.body.terminator
    if not isinstance(end, control.Yield):
        return op, []
    steps: dict[int, list[Value]] = {}
    for index, following in enumerate(end.values):
        arg = op.body.args[1 + index]
        if arg.type.rank and (found := _increments(following, arg)) is not None:
            steps[index] = found
    if not steps:
        return op, []
    new = _Rewrite(list(op.inits), list(end.values), Block([op.body.args[0]]))
    for index, arg in enumerate(op.carried):
        if index in steps:
            _carry_offset(new, op, index, arg, replaced)
        else:
            arg.index, arg.owner = len(new.body.args), new.body
            new.body.args.append(arg)
    for index, terms in steps.items():
        for term in terms:
            grown = _in_type(_scalar_of(term, new), new.yields[index].type.scalar, new.sums)
            total = elementwise.Add(new.yields[index], grown)
            new.sums.append(total)
            new.yields[index] = total.result
    block.ops += new.before
    new.body.ops = [*new.starts, *op.body.ops[:-1], *new.sums, control.Yield(tuple(new.yields))]
    made = control.For(op.lower, op.upper, op.step, tuple(new.inits), op.num_stages, op.unroll, new.body)
    made.location = op.location
    return made, _results(op, made, steps, replaced)


def _carry_offset(new: _Rewrite, op: control.For, index: int, arg: Value, replaced: dict[Value, Value]) -> None:
    counter = Tile(I64 if arg.type.is_pointer else arg.type.scalar)
    zero = elementwise.Constant(0, counter)
    new.before.append(zero)
    offset = new.body.add_argument(counter, arg.name)
    new.starts += _shifted(op.inits[index], offset)
    replaced[arg] = new.starts[-1].results[0]
    new.inits[index], new.yields[index] = zero.result, offset


def _results(
    op: control.For, made: control.For, steps: dict[int, list[Value]], replaced: dict[Value, Value]
) -> list[Op]:
    tail: list[Op] = []
    for index, (old, result) in enumerate(zip(op.results, made.results, strict=True)):
        if index in steps:
            tail += _shifted(op.inits[index], result)
            replaced[old] = tail[-1].results[0]
        else:
            replaced[old] = result
    return tail


def _increments(following: Value, arg: Value) -> list[Value] | None:
    """The uniform tiles whose sum ``following`` adds to ``arg``; None if it is not such a sum."""
    found: list[Value] = []
    while following is not arg:
        op = following.op
        match op:
            case elementwise.AddPtr():
                sides = [(op.pointer, op.offset)]
            case elementwise.Add() if op.result.type.is_integer:
                sides = [(op.lhs, op.rhs), (op.rhs, op.lhs)]
            case elementwise.Hint():
                following = op.x
                continue
            case _:
                return None
        for rest, step in sides:
            if _uniform_source(step) is not None:
                found.append(step)
                following = rest
                break
        else:
            return None
    return found or None


def _uniform_source(tile: Value) -> Value | elementwise.Constant | None:
    """The scalar or the constant that ``tile`` repeats."""
    while tile.type.rank:
        op = tile.op
        match op:
            case shape.Splat() | shape.Broadcast() | shape.ExpandDims() | shape.Reshape():
                tile = op.x
            case elementwise.Constant():
                return op
            case _:
                return None
    return tile


def _scalar_of(tile: Value, new: _Rewrite) -> Value:
    source = _uniform_source(tile)
    if isinstance(source, elementwise.Constant):
        made = elementwise.Constant(source.value, Tile(source.type.elem))
        new.before.append(made)
        return made.result
    if source is None:
        raise AssertionError("increments are uniform")
    return source


def _shifted(start: Value, offset: Value) -> list[Op]:
    """start + offset, elementwise."""
    spread = shape.Splat(offset, start.type.shape)
    if start.type.is_pointer:
        return [spread, elementwise.AddPtr(start, spread.result)]
    return [spread, elementwise.Add(start, spread.result)]


def _in_type(value: Value, to: Scalar, ops: list[Op]) -> Value:
    if value.type.elem == to:
        return value
    cast = elementwise.Cast(value, to)
    ops.append(cast)
    return cast.result
