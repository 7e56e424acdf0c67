"""Signs and divisors of polynomials, from the axis facts and from promises about arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...ir.core import Value
from ...launch_recipe import Guard
from .. import elementwise as e
from ..axis import AxisFacts
from ..axis.info import power_of_two_in
from ..debug import Assume
from ..program import rows_of_group
from .polynomial import Monomial, Polynomial
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
        for op in unknowns.function.body.ops:  # these hold whichever way the program goes
            if isinstance(op, Assume):
                self._known.update(dict.fromkeys(_assumed(op.condition), NONE))

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
        powers = (power_of_two_in(t.coefficient) * self.power_in(m) for m, t in polynomial.terms.items())
        if all(power >= divisor for power in powers):
            return NONE
        index = polynomial.unknown
        value = self.unknowns[index] if index is not None else None
        name = self.unknowns.parameters.get(value) if isinstance(value, Value) else None
        return self._promise(Guard(name, "multiple", divisor)) if name is not None else None

    def power_in(self, monomial: Monomial) -> int:
        """A power of two that divides the product ``monomial``, which has no coordinates."""
        power = 1
        for index in monomial:
            held = self.unknowns[index]
            power *= self.facts[held].everywhere if isinstance(held, Value) else 1
        return power

    def _promise(self, guard: Guard) -> Guards | None:
        return None if any(_implies(guard, other) for other in self.denied) else frozenset((guard,))

    def _sign(self, held: Value | Trips, depth: int = 0) -> Guards | None:
        if not isinstance(held, Value) or self.facts[held].nonnegative:
            return NONE
        if held not in self._known:
            self._known[held] = self._prove(held, depth)
        return self._known[held]

    def _prove(self, value: Value, depth: int) -> Guards | None:
        name = self.unknowns.parameters.get(value)
        if name is not None:
            return self._promise(Guard(name, "least", 0))
        if depth == _DEPTH:
            return None
        op = value.op
        if op is None:
            loop = self.unknowns.loop_of_index(value)
            return _all(self._sign(v, depth + 1) for v in (loop.lower, loop.step)) if loop is not None else None
        match op:
            case e.IntDiv():
                return _all(self._sign(v, depth + 1) for v in op.operands)
            case e.Rem():
                return self._sign(op.lhs, depth + 1)
            case e.Min() if rows_of_group(value):
                return NONE
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


def _implies(guard: Guard, other: Guard) -> bool:
    if (guard.parameter, guard.kind) != (other.parameter, other.kind):
        return False
    return guard.value >= other.value if guard.kind == "least" else guard.value % other.value == 0


def _assumed(condition: Value) -> Iterator[Value]:
    """Scalars that cannot be negative where ``condition`` is true."""
    op = condition.op
    if isinstance(op, e.And):
        yield from _assumed(op.lhs)
        yield from _assumed(op.rhs)
    elif isinstance(op, e.Compare) and op.lhs.type.is_integer:
        larger, smaller = (op.lhs, op.rhs) if op.predicate in ("gt", "ge") else (op.rhs, op.lhs)
        bound = smaller.op.value if isinstance(smaller.op, e.Constant) else -2
        if op.predicate in ("gt", "ge", "lt", "le") and bound >= -(op.predicate in ("gt", "lt")):
            yield larger


def _all(proofs: Iterable[Guards | None]) -> Guards | None:
    found: Guards = NONE
    for proof in proofs:
        if proof is None:
            return None
        found |= proof
    return found
