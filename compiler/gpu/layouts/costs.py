"""Rematerialisation: which values are computed again on demand, and which exist once and are moved."""

from __future__ import annotations

from ...ir.core import Function, Op, Value
from ...tile import elementwise as ew
from ...tile.shape import Arange, Splat
from .views import VIEWS, is_view

#: Integer and pointer arithmetic, and what costs one instruction: recomputing beats moving.
ARITHMETIC: frozenset[type[Op]] = frozenset(
    {
        ew.Constant, Arange, Splat, ew.Neg, ew.Not, ew.Abs, ew.Add, ew.Sub, ew.Mul, ew.IntDiv, ew.Rem, ew.And,
        ew.Or, ew.Xor, ew.Shl, ew.Shr, ew.Min, ew.Max, ew.Compare, ew.Select, ew.Cast, ew.Bitcast, ew.AddPtr,
        ew.Hint, ew.Fma,
    }
)  # fmt: skip

#: A value made by more operations than this is kept: random number generators are long integer expressions.
MOST_OPERATIONS = 100


class Costs:
    """Which values of one function may be computed again and which exist once, found in program order."""

    def __init__(self, function: Function) -> None:
        self._cheap: dict[Value, int] = {}
        for op in function.walk():
            if type(op) not in ARITHMETIC and type(op) not in VIEWS:
                continue
            tiles = [v for v in op.operands if v.type.rank]
            if all(v in self._cheap for v in tiles):
                cost = 1 + sum(self._cheap[v] for v in tiles)
                if cost <= MOST_OPERATIONS or type(op) in VIEWS:
                    self._cheap.update(dict.fromkeys(op.results, cost))

    def cheap(self, value: Value) -> bool:
        """Whether ``value`` is rematerialised on demand; everything it is made of is cheap too, or a scalar."""
        return value in self._cheap

    def exists_once(self, value: Value) -> bool:
        """Whether ``value`` is a tile that is computed once and then converted."""
        return bool(value.type.rank) and value not in self._cheap and not is_view(value.op)
