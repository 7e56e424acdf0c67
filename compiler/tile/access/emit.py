"""Operations that compute polynomials."""

from __future__ import annotations

from ...errors import Location
from ...ir.core import Op, Value
from ...ir.types import I32, I64, Scalar, Tile
from .. import elementwise as e
from ..control import For
from .polynomial import Polynomial
from .unknowns import Trips, Unknowns


class ScalarCode:
    """Appends scalar operations to ``ops``; a polynomial without terms, like every constant, becomes an i32."""

    def __init__(self, unknowns: Unknowns, location: Location | None) -> None:
        self.unknowns = unknowns
        self.location = location
        self.ops: list[Op] = []

    def add(self, op: Op) -> Value:
        """Append ``op``; its first result."""
        op.location = self.location
        self.ops.append(op)
        return op.results[0]

    def value(self, polynomial: Polynomial, type: Scalar | None = None) -> Value:
        """A scalar that equals ``polynomial``: of ``type``, else of the narrowest of i32 and i64 that holds it.

        A lone unknown is the value that it stands for, of whatever type, if no ``type`` is given.
        """
        index = polynomial.unknown
        if index is not None and type is None:
            return self._unknown(index)
        wanted = type or self._type_of(polynomial)
        total: Value | None = None
        ordered = sorted(polynomial.terms.items(), key=lambda item: item[1].coefficient < 0)
        for monomial, term in ordered:
            # A sum that begins below zero has no minuend.
            sign = -1 if term.coefficient < 0 and total is not None else 1
            product = self._product(monomial, sign * term.coefficient, wanted)
            if total is None:
                total = product
            else:
                total = self.add(e.Sub(total, product) if sign < 0 else e.Add(total, product))
        return self._number(0, wanted) if total is None else total

    def _type_of(self, polynomial: Polynomial) -> Scalar:
        fits = all(-(1 << 31) <= t.coefficient < 1 << 31 for t in polynomial.terms.values())
        if polynomial.constant is not None:
            return I32 if fits else I64
        narrow = all(not term.wide for term in polynomial.terms.values())
        narrow = narrow and all(self._is_narrow(u) for u in polynomial.unknowns)
        return I32 if fits and narrow else I64

    def _is_narrow(self, index: int) -> bool:
        held = self.unknowns[index]
        if isinstance(held, Trips):
            return not held.all and held.loop.lower.type.elem == I32
        return held.type.scalar.bits < 32 or held.type.elem == I32

    def _product(self, monomial: tuple[int, ...], coefficient: int, type: Scalar) -> Value:
        product: Value | None = None
        for index in monomial:
            factor = self._cast(self._unknown(index), type)
            product = factor if product is None else self.add(e.Mul(product, factor))
        if product is None:
            return self._number(coefficient, type)
        return product if coefficient == 1 else self.add(e.Mul(product, self._number(coefficient, type)))

    def _unknown(self, index: int) -> Value:
        held = self.unknowns[index]
        if isinstance(held, Value):
            return held
        loop = held.loop
        if held.all:
            return self._all_trips(loop)
        span = loop.body.args[0]
        if not _is(loop.lower, 0):
            span = self.add(e.Sub(span, loop.lower))
        return span if _is(loop.step, 1) else self.add(e.IntDiv(span, loop.step))

    def _all_trips(self, loop: For) -> Value:
        """The number of steps, which are positive, from lower to upper bound, rounded up."""
        lower, upper, step = (self._cast(v, I64) for v in (loop.lower, loop.upper, loop.step))
        span = self.add(e.Max(self.add(e.Sub(upper, lower)), self._number(0, I64)))
        last = self.add(e.Sub(step, self._number(1, I64)))
        return self.add(e.IntDiv(self.add(e.Add(span, last)), step))

    def _cast(self, value: Value, type: Scalar) -> Value:
        if isinstance(value.op, e.Constant):  # loops do not repeat a division by a constant
            return self._number(int(value.op.value), type)
        return value if value.type.elem == type else self.add(e.Cast(value, type))

    def _number(self, value: int, type: Scalar) -> Value:
        return self.add(e.Constant(value, Tile(type)))


def _is(value: Value, number: int) -> bool:
    return isinstance(value.op, e.Constant) and value.op.value == number
