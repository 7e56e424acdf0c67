"""The scalars that polynomials are made of, by number."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Block, Function, Op, Value
from .. import elementwise as e
from ..control import For
from .polynomial import Monomial, Polynomial, Term, number, unknown, without

#: Operations on scalars that a launcher can repeat on the arguments.
_HOST = (e.Add, e.Sub, e.Mul, e.IntDiv, e.Min, e.Max, e.Neg, e.Cast, e.Hint, e.Constant)


@dataclass(frozen=True, eq=False)
class Trips:
    """How many iterations of ``loop`` have ended; never negative."""

    loop: For


class Unknowns:
    """Numbers scalars and trip counts of one function, and knows where they come from."""

    def __init__(self, function: Function) -> None:
        self.parameters = {p.value: p.name for p in function.parameters}
        self.loops: dict[Block, For] = {}
        self._held: list[Value | Trips] = []
        self._numbers: dict[Value | For, int] = {}
        self._homes: dict[Value, Block] = {}
        self._around: dict[Block, Block] = {}
        self._host: dict[Value, bool] = {}
        self._enter(function.body)

    def _enter(self, block: Block) -> None:
        self._homes.update(dict.fromkeys(block.args, block))
        for op in block.ops:
            self._homes.update(dict.fromkeys(op.results, block))
            for nested in op.blocks:
                self._around[nested] = block
                self._enter(nested)
            if isinstance(op, For):
                self.loops[op.body] = op

    def __getitem__(self, index: int) -> Value | Trips:
        return self._held[index]

    def scalar(self, value: Value) -> Polynomial:
        """The unknown that stands for a scalar integer."""
        bits = value.type.scalar.bits
        return unknown(self._number(value, value), bits > 32)

    def trips(self, loop: For) -> Polynomial:
        """The unknown that stands for the iterations of ``loop`` that have ended."""
        return unknown(self._number(loop, Trips(loop)))

    def _number(self, key: Value | For, held: Value | Trips) -> int:
        found = self._numbers.setdefault(key, len(self._held))
        if found == len(self._held):
            self._held.append(held)
        return found

    def loop_of_index(self, value: Value) -> For | None:
        """The loop that counts in ``value``, if one does."""
        loop = self.loops.get(value.owner) if isinstance(value.owner, Block) else None
        return loop if loop is not None and value is loop.body.args[0] else None

    def adopt(self, op: Op, beside: Op) -> None:
        """``op``, which is new, will stand where ``beside`` stands."""
        home = self._homes[beside.results[0]]
        self._homes.update(dict.fromkeys(op.results, home))

    def changes_in(self, polynomial: Polynomial, loop: For) -> bool:
        """Whether an unknown is defined inside ``loop``; its own trip count is."""
        return any(self._is_inside(u, loop) for u in polynomial.unknowns if u >= 0)

    def _is_inside(self, index: int, loop: For) -> bool:
        held = self._held[index]
        block: Block | None = held.loop.body if isinstance(held, Trips) else self._homes[held]
        while block is not None and block is not loop.body:
            block = self._around.get(block)
        return block is not None

    def on_host(self, polynomial: Polynomial) -> bool:
        """Whether a launcher can compute it from the arguments."""
        return all(self.is_host(u) for u in polynomial.unknowns)

    def is_host(self, index: int) -> bool:
        """Whether the unknown is a parameter or simple arithmetic on parameters."""
        held = self._held[index] if index >= 0 else None
        return isinstance(held, Value) and self._from_arguments(held)

    def _from_arguments(self, value: Value) -> bool:
        if value in self.parameters or value.type.rank or value.op is None:
            return value in self.parameters
        known = self._host.get(value)
        if known is None:
            op = value.op
            known = isinstance(op, _HOST) and value.type.is_integer and all(map(self._from_arguments, op.operands))
            self._host[value] = known
        return known

    def without_trips(self, polynomial: Polynomial, bounds: dict[For, tuple[Polynomial, Polynomial]]) -> Polynomial:
        """Trip counts times their loop's step written as ``index - lower``; ``bounds``: lower and step of each loop."""
        done = number(0)
        for monomial, term in polynomial.terms.items():
            done += self._without_trips(monomial, term, bounds)
        return done

    def _without_trips(
        self, monomial: Monomial, term: Term, bounds: dict[For, tuple[Polynomial, Polynomial]]
    ) -> Polynomial:
        for index in monomial:
            held = self._held[index] if index >= 0 else None
            if not isinstance(held, Trips):
                continue
            lower, step = bounds[held.loop]
            if len(step.terms) != 1:
                continue
            ((factor, size),) = step.terms.items()
            rest = Polynomial({without(monomial, (index,)): term}).quotient(factor, size.coefficient)
            if rest:
                index_value = self.scalar(held.loop.body.args[0])
                return self.without_trips(rest * (index_value - lower), bounds)
        return Polynomial({monomial: term})
