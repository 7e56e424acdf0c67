"""Signs and divisors of polynomials, from the axis facts and from promises about arguments."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.core import Value
from ...launch_recipe import Guard
from .. import elementwise as e
from ..axis import AxisFacts
from ..axis.info import power_of_two_in
from .polynomial import Polynomial
from .unknowns import Trips, Unknowns

Guards = frozenset[Guard]
NONE: Guards = frozenset()

#: Of nonnegative operands these make nonnegative results (casts: between integers of at least 32 bits).
_KEEPS_SIGN = (e.Add, e.Mul, e.Min, e.And, e.Or, e.Xor)
_DEPTH = 60  # of operations that are followed


class Signs:
    """Answers with the promises that an answer needs, or None where there is no proof."""

    def __init__(self, unknowns: Unknowns, facts: AxisFacts, denied: Guards) -> None:
        self.unknowns = unknowns
        self.facts = facts
        self.denied = denied
        self._known: dict[Value, Guards | None] = {}

    def assume_nonnegative(self, value: Value, guards: Guards) -> None:
        """Remember what was proven about a value that the facts do not know."""
        self._known[value] = guards

    def nonnegative(self, polynomial: Polynomial) -> Guards | None:
        """Promises under which no term of ``polynomial`` is below zero."""
        if any(term.coefficient < 0 for term in polynomial.terms.values()):
            return None
        return _all(self._sign(self.unknowns[u]) for u in sorted(polynomial.unknowns))

    def multiple(self, polynomial: Polynomial, divisor: int) -> Guards | None:
        """Promises under which ``polynomial`` is a multiple of ``divisor``, a power of two."""
        if all(self._power_in(m, t.coefficient) >= divisor for m, t in polynomial.terms.items()):
            return NONE
        index = polynomial.unknown
        value = self.unknowns[index] if index is not None else None
        name = self.unknowns.parameters.get(value) if isinstance(value, Value) else None
        return self._promise(Guard(name, "multiple", divisor)) if name is not None else None

    def _power_in(self, monomial: tuple[int, ...], coefficient: int) -> int:
        power = power_of_two_in(coefficient)
        for index in monomial:
            held = self.unknowns[index]
            power *= self.facts[held].everywhere if isinstance(held, Value) else 1
        return power

    def _promise(self, guard: Guard) -> Guards | None:
        return None if guard in self.denied else frozenset((guard,))

    def _sign(self, held: Value | Trips, depth: int = 0) -> Guards | None:
        if isinstance(held, Trips) or self.facts[held].nonnegative:
            return NONE
        if held not in self._known:
            self._known[held] = self._prove(held, depth)
        return self._known[held]

    def _prove(self, value: Value, depth: int) -> Guards | None:
        name = self.unknowns.parameters.get(value)
        if name is not None:
            return self._promise(Guard(name, "nonnegative"))
        if depth == _DEPTH:
            return None
        op = value.op
        if op is None:
            loop = self.unknowns.loop_of_index(value)
            return _all(self._sign(v, depth + 1) for v in (loop.lower, loop.step)) if loop is not None else None
        match op:
            case e.IntDiv() | e.Rem():
                divisor = self.facts[op.rhs].constant
                positive = divisor is None or divisor > 0 or isinstance(op, e.Rem)
                return self._sign(op.lhs, depth + 1) if positive else None
            case e.Max():
                left = self._sign(op.lhs, depth + 1)
                return left if left is not None else self._sign(op.rhs, depth + 1)
            case e.Select():
                return _all(self._sign(v, depth + 1) for v in (op.on_true, op.on_false))
            case e.Cast() if op.x.type.is_integer and value.type.scalar.bits > op.x.type.scalar.bits:
                return self._sign(op.x, depth + 1)
            case e.Hint() | e.Shl() | e.Shr():
                return self._sign(op.operands[0], depth + 1)
            case _ if isinstance(op, _KEEPS_SIGN) and value.type.is_integer:
                return _all(self._sign(v, depth + 1) for v in op.operands)
        return None


def _all(proofs: Iterable[Guards | None]) -> Guards | None:
    found: Guards = NONE
    for proof in proofs:
        if proof is None:
            return None
        found |= proof
    return found
