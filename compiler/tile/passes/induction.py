"""Induction variables as functions of the loop's index: ``offset += 64`` is where the index is, times 64.

What depends on nothing but the index is known for later iterations, so copies for them can begin early; what a loop
carries is known only once the iterations before are done.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Function, Op, Value
from ...ir.types import SCALARS
from ..blocks import BlockLoad
from ..control import For, Yield
from ..elementwise import Add, Cast, Constant, Hint, IntDiv, Mul, Sub


def linearize_induction(function: Function) -> Function:
    """In loops that load blocks, rewrite carried integer scalars to which every iteration adds the same amount into
    ``init + (index - lower) // step * amount``, in place.

    The step is a positive constant; a ``for`` begins at ``lower``, so the division has no remainder. What is not read
    any more is left to dce.
    """
    for op in function.walk():
        if isinstance(op, For) and any(isinstance(inner, BlockLoad) for inner in op.body.ops):
            _linearize(op)
    return function


def _linearize(loop: For) -> None:
    step, end = loop.step.op, loop.body.terminator
    if not isinstance(step, Constant) or step.value <= 0 or not isinstance(end, Yield):
        return
    emit = _Emit(loop, int(step.value), [])
    replaced: dict[Value, Value] = {}
    for argument, init, value in zip(loop.carried, loop.inits, end.values, strict=True):
        if argument.type.is_integer and not argument.type.rank:
            growth = _growth(loop, argument, value)
            if growth:
                replaced[argument] = emit.after(init, growth)
    loop.body.replace_uses(replaced)
    loop.body.ops[:0] = emit.ops


def _growth(loop: For, argument: Value, value: Value) -> list[tuple[Value, bool]]:
    """What leads from ``argument`` to ``value``: invariant terms, each with whether it is subtracted; none if there is
    no such way."""
    inside = {*loop.body.args, *(result for op in loop.body.ops for result in op.results)}
    terms: list[tuple[Value, bool]] = []
    while value is not argument:
        match value.op:
            case Add() as op if op.rhs not in inside:
                terms.append((op.rhs, False))
                value = op.lhs
            case Add() as op if op.lhs not in inside:
                terms.append((op.lhs, False))
                value = op.rhs
            case Sub() as op if op.rhs not in inside:
                terms.append((op.rhs, True))
                value = op.lhs
            case Hint() as op:
                value = op.x
            case _:
                return []
        if value not in inside:
            return []
    return terms


@dataclass
class _Emit:
    """Appends to ``ops`` what the beginning of ``loop``'s body computes from the index."""

    loop: For
    step: int
    ops: list[Op]

    def after(self, init: Value, growth: list[tuple[Value, bool]]) -> Value:
        """``init`` plus ``growth`` for every iteration before this one, modulo 2 to the width of its type."""
        type, done = init.type, self._distance()
        known = _constant(growth)
        if known is not None and known % self.step == 0:
            amount = self.add(Constant(known // self.step, type))
        else:
            if self.step != 1:
                done = self.add(IntDiv(done, self.add(Constant(self.step, done.type))))
            amount = self._sum(growth)
        if done.type != type:
            done = self.add(Cast(done, type.scalar))
        if not _is(amount, 1):
            done = self.add(Mul(done, amount))
        return done if _is(init, 0) else self.add(Add(init, done))

    def _distance(self) -> Value:
        """Index minus lower bound, which is not negative and may need the sign's bit."""
        index, lower = self.loop.body.args[0], self.loop.lower
        if _is(lower, 0):
            return index
        made, bound, scalar = self.add(Sub(index, lower)), lower.op, index.type.scalar
        if scalar.is_signed and not (isinstance(bound, Constant) and bound.value >= 0):
            made = self.add(Cast(made, SCALARS[f"u{scalar.bits}"]))
        return self.add(Hint(made, (self.step & -self.step,)))  # the bounds may be aligned to nothing

    def _sum(self, growth: list[tuple[Value, bool]]) -> Value:
        added = [term for term, subtracted in growth if not subtracted]
        total = added.pop(0) if added else self.add(Constant(0, growth[0][0].type))
        for term in added:
            total = self.add(Add(total, term))
        for term in (term for term, subtracted in growth if subtracted):
            total = self.add(Sub(total, term))
        return total

    def add(self, op: Op) -> Value:
        op.location = self.loop.location
        self.ops.append(op)
        return op.results[0]


def _constant(growth: list[tuple[Value, bool]]) -> int | None:
    total = 0
    for term, subtracted in growth:
        made = term.op
        if not isinstance(made, Constant):
            return None
        total += -int(made.value) if subtracted else int(made.value)
    return total


def _is(value: Value, number: int) -> bool:
    made = value.op
    return isinstance(made, Constant) and made.value == number
