"""Persistent kernels: a grid of at most one program per SM, each of which walks over many of the user's programs.

So the copies for the next tile run while the results of this one are written, and what is set up once is set up once.
It is legal where programs do not wait for each other (:mod:`.legality`).

Where the place along the first axis decides how long a program takes, as in causal attention, the grid is folded in the
middle: a program takes one of the user's programs and then the one as far from the other end. The longer the one, the
shorter the other, and no SM is left with the long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.core import Block, Function, Op, Value
from ..ir.types import I32, Tile
from ..tile import elementwise as ew
from ..tile.axis.info import AxisInfo, unknown
from ..tile.axis.rules import rule
from ..tile.control import For, Yield
from ..tile.matmul import Dot
from ..tile.passes import cse, licm
from ..tile.passes.dce import decided_by
from ..tile.program import NumPrograms, ProgramId
from .arrays import READS
from .asynchronous import GridSize

#: Axes of a grid.
AXES = 3


@rule(GridSize)
def _grid_size(op: GridSize) -> list[AxisInfo]:
    """Sizes are not negative."""
    return [unknown(op.result.type)._replace(nonnegative=True)]


def make_persistent(function: Function) -> None:
    """Put a loop over all programs of the grid around the body of ``function``, in place."""
    sizes = [GridSize(axis) for axis in range(AXES)]
    plane = ew.Mul(sizes[0].result, sizes[1].result)
    total = ew.Mul(plane.result, sizes[2].result)
    first, step = ProgramId(0), NumPrograms(0)
    walk = (_folded if deciding_axes(function) == frozenset({0}) else _straight)(
        total.result, first.result, step.result
    )
    row = ew.IntDiv(walk.number, sizes[0].result)
    ids = [
        ew.Rem(walk.number, sizes[0].result),
        ew.Rem(row.result, sizes[1].result),
        ew.IntDiv(walk.number, plane.result),
    ]
    replaced: dict[Value, Value] = {}
    body = walk.body
    body.ops += [row, *ids, *_without_grid(function.body, ids, sizes, replaced), Yield(())]
    loop = For(*walk.bounds, inits=(), num_stages=0, unroll=1, body=body)
    body.replace_uses(replaced)
    function.body.ops = [*sizes, plane, total, first, step, *walk.before, loop]
    licm(function)
    cse(function)


@dataclass(frozen=True, slots=True)
class _Walk:
    """A loop over some of the user's programs. ``before``: what its ``bounds`` (lower, upper, step) are made of;
    ``body`` begins with what the ``number`` of a program among all of the grid is made of."""

    before: tuple[Op, ...]
    bounds: tuple[Value, Value, Value]
    body: Block
    number: Value


def _straight(total: Value, first: Value, step: Value) -> _Walk:
    """Each ``step``-th program from ``first`` on."""
    body = Block()
    return _Walk((), (first, total, step), body, body.add_argument(Tile(I32), "tile"))


def _folded(total: Value, first: Value, step: Value) -> _Walk:
    """Each ``step``-th pair from ``first`` on: a program, and that as far from the last one. Of an odd number the one
    in the middle has no other."""
    before: list[Op] = []
    body = Block()
    visit = body.add_argument(Tile(I32), "visit")
    once, each = _appending(before), _appending(body.ops)
    zero, one, two = (once(ew.Constant(n, Tile(I32))) for n in range(3))

    pairs = once(ew.IntDiv(once(ew.Add(total, one)), two))
    left = once(ew.Sub(pairs, first))
    rounded = once(ew.Max(once(ew.Sub(once(ew.Add(left, step)), one)), zero))
    has_last = once(ew.Compare(once(ew.Rem(once(ew.Sub(left, one)), step)), zero, "eq"))
    alone = once(ew.Select(has_last, once(ew.Rem(total, two)), zero))
    visits = once(ew.Sub(once(ew.Mul(once(ew.IntDiv(rounded, step)), two)), alone))

    near = each(ew.Add(first, each(ew.Mul(each(ew.IntDiv(visit, two)), step))))
    mirrored = each(ew.Sub(once(ew.Sub(total, one)), near))
    far = each(ew.Max(mirrored, zero))  # it is not negative, and is seen not to be
    is_near = each(ew.Compare(each(ew.Rem(visit, two)), zero, "eq"))
    number = each(ew.Select(is_near, near, far))
    return _Walk(tuple(before), (zero, visits, one), body, number)


def _appending(ops: list[Op]) -> Callable[[Op], Value]:
    """A function that appends an operation to ``ops`` and gives its result."""

    def append(op: Op) -> Value:
        ops.append(op)
        return op.results[0]

    return append


def deciding_axes(function: Function) -> frozenset[int] | None:
    """The axes of the grid along which programs differ in how often their loops around products run; None where that
    lies in memory."""
    loops = [loop for loop in function.ops_of(For) if loop.body.ops_of(Dot)]
    bounds = [bound for loop in loops for bound in loop.deciding]
    deciding = {op for bound in bounds for op in decided_by(function, bound)}
    if any(isinstance(op, READS) for op in deciding):
        return None
    return frozenset(op.axis for op in deciding if isinstance(op, ProgramId))


def _without_grid(block: Block, ids: Sequence[Op], sizes: Sequence[Op], replaced: dict[Value, Value]) -> list[Op]:
    """The operations of ``block`` but those that ask for the place in the grid, whose results are ``replaced``."""
    kept: list[Op] = []
    for op in block.ops:
        for nested in op.blocks:
            nested.ops = _without_grid(nested, ids, sizes, replaced)
        match op:
            case ProgramId():
                replaced[op.result] = ids[op.axis].result
            case NumPrograms():
                replaced[op.result] = sizes[op.axis].result
            case _:
                kept.append(op)
    return kept
