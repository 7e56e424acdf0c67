"""How far apart neighbours mostly lie: what no fact can promise where rows wrap, or where sizes are not known.

``pixel % width`` goes up by one but for the ends of rows, and ``pixel // width`` stays what it is. Nothing is right or
wrong by this; it says which neighbours are likely to share a sector of memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.core import Value
from ..elementwise import Add, AddPtr, Bitcast, Cast, Constant, Hint, IntDiv, Max, Min, Mul, Rem, Select, Shl, Shr, Sub
from ..shape import Arange, Broadcast, ExpandDims, Permute, Splat
from .info import AxisInfo

#: By dimension: what a neighbour is higher by, mostly; None where nothing is known.
Steps = tuple[int | None, ...]


class TypicalSteps:
    """By value, for integer and pointer tiles, pointers in elements; ``begins``: what the carried values of loops are
    first, ``facts``: which values are numbers that are known."""

    def __init__(self, begins: Mapping[Value, Value], facts: Mapping[Value, AxisInfo]) -> None:
        self._begins = begins
        self._facts = facts
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
                return self._scaled(op)
        return (None,) * rank

    def _number(self, value: Value) -> int | None:
        """The integer that all elements are; None where that is not known."""
        info = self._facts.get(value)
        return info.constant if info is not None else None

    def _scaled(self, op: Mul | Shl | IntDiv | Shr) -> Steps:
        left, right, factor = self[op.lhs], self[op.rhs], self._number(op.rhs)
        if factor is None and isinstance(op, Mul) and (factor := self._number(op.lhs)) is not None:
            left = right
        if isinstance(op, Shl | Shr) and factor is not None:
            # A shift by as many bits as there are, or by fewer than none, has no result.
            factor = 1 << factor if 0 <= factor < op.lhs.type.elem.bits else None
        if isinstance(op, IntDiv | Shr):
            return tuple(None if step is None else step // factor if factor else 0 for step in left)
        if factor is not None:
            return tuple(None if step is None else step * factor for step in left)
        return tuple(0 if a == b == 0 else None for a, b in zip(left, right, strict=True))
