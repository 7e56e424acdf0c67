"""If-conversion: short branches of loops become straight code, whose loads are masked off and whose results are chosen.

A branch ends what an assembler moves: loads behind it wait for its condition, and a loop with one stays as it is. The
second half of decoding, which combines what parts of a sequence came to, passes over empty parts so::

    for part in range(parts):                        for part in range(parts):
        if begins[part] < ends[part]:                    exists = begins[part] < ends[part]
            x = load(at)                                 x = load(at, mask=exists)
            total = total * f(x) + x            ->       total = total * f(x) + x if exists else total

Layouts are chosen. Nothing is stored in such a branch, and nothing divided by what may be zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Block, Op, Value
from ...ir.types import Tile
from ...tile import elementwise as ew
from ...tile.control import For, If, handed_on
from ...tile.shape import Splat
from ..ops import VectorLoad
from .plain import may_run_anyway


def straighten(loop: For) -> dict[Value, Value]:
    """Replace the branches of ``loop``, in place; what stands for their results."""
    replaced: dict[Value, Value] = {}
    out: list[Op] = []
    for op in loop.body.ops:
        for reader in op.walk():
            reader.replace_operands(replaced)
        if isinstance(op, If):
            replaced |= _straight(op, out)
        else:
            out.append(op)
    loop.body.ops = out
    return replaced


def is_short(op: Op) -> bool:
    """Whether ``op`` is a branch that loads and computes, and may do so where it is not taken."""
    return isinstance(op, If) and all(may_run_anyway(inner) for block in op.blocks for inner in block.ops)


def _straight(branch: If, out: list[Op]) -> dict[Value, Value]:
    def add(op: Op) -> Value:
        op.location = branch.location
        out.append(op)
        return op.results[0]

    taken = branch.condition
    if any(isinstance(op, VectorLoad) for op in branch.otherwise.ops):
        _inline(branch.otherwise, add(ew.Not(taken)), out, add)
    else:
        out += branch.otherwise.ops[:-1]
    _inline(branch.then, taken, out, add)
    sides = zip(branch.results, handed_on(branch.then), handed_on(branch.otherwise), strict=True)
    return {
        result: one if one is other else add(ew.Select(spread(taken, one.type, add), one, other))
        for result, one, other in sides
    }


def _inline(block: Block, taken: Value, out: list[Op], add: Callable[[Op], Value]) -> None:
    for op in block.ops[:-1]:
        if isinstance(op, VectorLoad):
            mask = spread(taken, op.pointer.type, add)
            op.mask = mask if op.mask is None else add(ew.And(op.mask, mask))
        out.append(op)


def spread(flag: Value, like: Tile, add: Callable[[Op], Value]) -> Value:
    """``flag`` in the shape and layout of ``like``."""
    if not like.rank:
        return flag
    made = Splat(flag, like.shape)
    made.result.type = made.result.type.with_layout(like.layout)
    return add(made)
