"""How far apart neighbours mostly lie: what no fact can promise where rows wrap, or where sizes are not known.

``pixel % width`` goes up by one but for the ends of rows, and ``pixel // width`` stays what it is. Nothing is right or
wrong by this; it says which neighbours are likely to share a sector of memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.core import Op, Value
from ..elementwise import Add, AddPtr, Bitcast, Cast, Constant, Hint, IntDiv, Max, Min, Mul, Rem, Select, Shl, Shr, Sub
from ..shape import Arange, Broadcast, ExpandDims, Permute, Splat

#: By dimension: what a neighbour is higher by, mostly; None where nothing is known.
Steps = tuple[int | None, ...]


class TypicalSteps:
    """By value, for integer and pointer tiles, pointers in elements; ``begins``: what the carried values of loops are
    first."""

    def __init__(self, begins: Mapping[Value, Value]) -> None:
        self._begins = begins
        self._known: dict[Value, Steps] = {}

    def __getitem__(self, value: Value) -> Steps:
        known = self._known
        path = [] if value in known else [value]
        while path:  # no recursion: addresses may be made by hundreds of operations
            last = path[-1]
            begin = self._begins.get(last)
            made_of = (begin,) if begin is not None else last.op.operands if last.op is not None else ()
            missing = [operand for operand in made_of if operand not in known]
            if missing:
                path += missing
            else:
                known[path.pop()] = self._of(last) if begin is None else known[begin]
        return known[value]

    def _of(self, value: Value) -> Steps:
        op, rank = value.op, value.type.rank
        if op is None or not rank:
            return (None,) * rank
        match op:
            case Constant() | Splat():
                return (0,) * rank
            case Arange():
                return (1,)
            case ExpandDims():
                before = self[op.x]
                return (*before[: op.axis], 0, *before[op.axis :])
            case Broadcast():
                return tuple(0 if size == 1 else step for size, step in zip(op.x.type.shape, self[op.x], strict=True))
            case Permute():
                return tuple(self[op.x][axis] for axis in op.order)
            case Cast() | Bitcast() | Hint() | Rem() | Min() | Max():
                return self[op.operands[0]]
            case Select():
                return self[op.on_true]
            case Add() | AddPtr() | Sub():
                sign = -1 if isinstance(op, Sub) else 1
                both = zip(*map(self.__getitem__, op.operands), strict=True)
                return tuple(None if a is None or b is None else a + sign * b for a, b in both)
            case Mul() | Shl() | IntDiv() | Shr():
                return _scaled(op, self[op.lhs], self[op.rhs])
        return (None,) * rank


def _scaled(op: Mul | Shl | IntDiv | Shr, left: Steps, right: Steps) -> Steps:
    factor = _number(op.rhs)
    if factor is None and isinstance(op, Mul) and (factor := _number(op.lhs)) is not None:
        left = right
    steps: list[int | None] = []
    for step, other in zip(left, right, strict=True):
        if isinstance(op, IntDiv | Shr):
            by = 0 if factor is None else factor if isinstance(op, IntDiv) else 1 << factor
            steps.append(None if step is None else step // by if by else 0)
        elif factor is not None:
            steps.append(None if step is None else step * factor if isinstance(op, Mul) else step << factor)
        else:
            steps.append(0 if step == other == 0 else None)
    return tuple(steps)


def _number(value: Value) -> int | None:
    """The integer that all elements are; None where that is not known."""
    op: Op | None = value.op
    while isinstance(op, Splat | Broadcast | ExpandDims | Cast):
        op = op.operands[0].op
    return int(op.value) if isinstance(op, Constant) else None
