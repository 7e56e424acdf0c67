"""One program for many tiles: a grid of at most one program a processor, each of which walks over the user's programs.

So the copies for the next tile run while the results of this one are written, and what is set up once is set up once.
It is legal where programs do not wait for each other (:mod:`.legality`).
"""

from __future__ import annotations

from collections.abc import Sequence

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

AXES = 3


@rule(GridSize)
def _grid_size(op: GridSize) -> list[AxisInfo]:
    """Sizes are not negative."""
    return [unknown(op.result.type)._replace(nonnegative=True)]


def make_persistent(function: Function) -> Function:
    """Put a loop over all programs of the grid around the body of ``function``, in place."""
    sizes = [GridSize(axis) for axis in range(AXES)]
    plane = ew.Mul(sizes[0].result, sizes[1].result)
    total = ew.Mul(plane.result, sizes[2].result)
    first, step = ProgramId(0), NumPrograms(0)
    body = Block()
    number = body.add_argument(Tile(I32), "tile")
    row = ew.IntDiv(number, sizes[0].result)
    ids = [ew.Rem(number, sizes[0].result), ew.Rem(row.result, sizes[1].result), ew.IntDiv(number, plane.result)]
    replaced: dict[Value, Value] = {}
    body.ops = [row, *ids, *_without_grid(function.body, ids, sizes, replaced), Yield(())]
    loop = For(first.result, total.result, step.result, (), 0, 1, body)
    for op in body.walk():
        op.map_operands(lambda v: replaced.get(v, v))
    function.body.ops = [*sizes, plane, total, first, step, loop]
    return cse(licm(function))


def takes_equal_time(function: Function) -> bool:
    """Whether the loops around products run equally often in all programs: neither which program it is decides on that,
    as in causal attention, nor what lies in memory."""
    loops = [op for op in function.walk() if isinstance(op, For) and any(isinstance(o, Dot) for o in op.body.walk())]
    bounds = [bound for loop in loops for bound in (loop.lower, loop.upper, loop.step)]
    return not any(isinstance(op, (ProgramId, *READS)) for bound in bounds for op in decided_by(function, bound))


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
