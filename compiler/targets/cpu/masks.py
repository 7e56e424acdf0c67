"""Masks that are true everywhere, which is what they are in all blocks of a grid but the last ones.

Masked accesses are slower than plain ones even with all lanes on. Where a mask compares consecutive numbers with a
bound, one comparison before the loop says whether it is true everywhere; the loop then exists twice.
"""

from __future__ import annotations

from ...ir.core import Value
from ...llvm.typed import Typed, constant
from ...tile import elementwise as ops
from ...tile import shape
from .chunk import Coord
from .emission import Emission
from .lower import CpuLowering

#: Chunks that a loop must have to be worth emitting twice.
WORTH_TWO_LOOPS = 4


def bounded_counts(values: list[Value]) -> list[Value]:
    """Those of ``values`` that are "consecutive numbers < bound"."""
    return [v for v in values if isinstance(v.op, ops.Compare) and _is_bounded(v.op)]


def _is_bounded(op: ops.Compare) -> bool:
    if op.predicate not in ("lt", "le") or not op.lhs.type.is_integer:
        return False
    long = sum(n > 1 for n in op.lhs.type.shape)
    return long == 1 and _counts(op.lhs) and _is_spread(op.rhs)


def _counts(value: Value) -> bool:
    """Whether the elements grow by one (modulo the width of the type)."""
    op = value.op
    match op:
        case shape.Arange():
            return True
        case shape.ExpandDims() | ops.Hint():
            return _counts(op.x)
        case ops.Add():
            sides = ((op.lhs, op.rhs), (op.rhs, op.lhs))
            return any(_counts(x) and _is_spread(y) for x, y in sides)
    return False


def _is_spread(value: Value) -> bool:
    """Whether all elements are one scalar."""
    op = value.op
    match op:
        case shape.Splat() | ops.Constant():
            return True
        case shape.ExpandDims() | shape.Broadcast() | ops.Hint():
            return _is_spread(op.x)
    return False


def holds_everywhere(low: CpuLowering, mask: Value) -> Typed:
    """An i1: the bound lies above the last number, and the numbers do not wrap around."""
    op = mask.op
    if not isinstance(op, ops.Compare):
        raise AssertionError("a mask of bounded_counts is a comparison")
    emission = Emission(low, 1, {})
    first, last = (_element(emission, op.lhs, [at * (n - 1) for n in op.lhs.type.shape]) for at in (0, 1))
    bound = _element(emission, op.rhs, [0] * op.rhs.type.rank)
    emission.finish()
    sign = "s" if op.lhs.type.scalar.is_signed else "u"
    below = low.e.compare(sign + op.predicate, last, bound)
    return low.e.binary("and", below, low.e.compare(sign + "le", first, last))


def _element(emission: Emission, value: Value, index: list[int]) -> Typed:
    coords = tuple(Coord(constant("i32", i), 0, 0, 1) for i in index)
    return emission.as_vector(emission.chunk(value, coords))
