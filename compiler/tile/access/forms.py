"""Integers, pointers and masks as polynomials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...ir.core import Block, Function, Op, Value
from ...ir.types import I1
from ...launch_recipe import Guard
from .. import elementwise as e
from .. import shape as s
from ..axis import AxisFacts
from ..control import For, Yield
from .emit import ScalarCode
from .polynomial import ZERO, Monomial, Polynomial, Term, coordinate, number, unknown, without
from .signs import NONE, Guards, Signs
from .unknowns import Trips, Unknowns

_LARGEST = 48  # terms; what has more is taken as a whole


@dataclass(frozen=True, slots=True)
class Form:
    """An integer, or a pointer ``offset`` elements behind the scalar ``base``; true under ``guards``.

    Unknowns below zero are the coordinates of the tile's elements along dimensions larger than 1.
    """

    offset: Polynomial
    base: Value | None = None
    guards: Guards = NONE

    def with_offset(self, offset: Polynomial, *others: Form) -> Form:
        """Another offset, under the promises of ``others`` as well."""
        return Form(offset, self.base, self.guards.union(*(other.guards for other in others)))


@dataclass(frozen=True, slots=True)
class Inequalities:
    """All of ``positive`` are above zero; true under ``guards``."""

    positive: tuple[Polynomial, ...]
    guards: Guards = NONE


class Forms:
    """The forms of the values of one function. Values should be asked for in program order: what a form is made of is
    then known already, and the recursion stays shallow."""

    def __init__(self, function: Function, facts: AxisFacts, denied: frozenset[Guard]) -> None:
        self.facts = facts
        self.unknowns = Unknowns(function)
        self.signs = Signs(self.unknowns, facts, denied)
        #: New operations, to be placed before the one that they belong to.
        self.placed: dict[Op, list[Op]] = {}
        self._known: dict[Value, Form | None] = {}
        self._busy: set[Value] = set()

    def of(self, value: Value) -> Form | None:
        """The form of an integer or pointer value; None if it has none. Scalars always have one, except i1."""
        if value not in self._known:
            form = self._make(value) if value.type.elem != I1 and not value.type.is_float else None
            if form is None or len(form.offset.terms) > _LARGEST:
                form = self._opaque(value)
            self._known[value] = form
        return self._known[value]

    def _opaque(self, value: Value) -> Form | None:
        if value.type.rank or value.type.is_float or value.type.elem == I1:
            return None
        return Form(ZERO, value) if value.type.is_pointer else Form(self.unknowns.scalar(value))

    def _make(self, value: Value) -> Form | None:
        if isinstance(value.owner, Block):
            loop = self.unknowns.loops.get(value.owner)
            return self._argument(loop, value) if loop is not None else None
        op = value.op
        if isinstance(op, For):
            return self._result(op, value.index)
        rule = _RULES.get(type(op)) if op is not None else None
        if rule is None or (value.type.is_integer and value.type.scalar.bits < 32):
            return None  # narrow integers do wrap
        return rule(op, self)

    # Loops ---------------------------------------------------------------------------------------------------

    def _argument(self, loop: For, value: Value) -> Form | None:
        if value.index:
            return self._after(loop, value, self.unknowns.trips(loop))
        lower, step = self._bounds(loop)
        if lower is None or step is None or value.type.scalar.bits < 32:
            return None
        return Form(lower + step * self.unknowns.trips(loop))

    def _result(self, loop: For, index: int) -> Form | None:
        step = self.facts[loop.step].constant
        if step is None or step <= 0:
            return None
        return self._after(loop, loop.body.args[index + 1], self.unknowns.all_trips(loop))

    def _after(self, loop: For, argument: Value, trips: Polynomial) -> Form | None:
        """What is carried as ``argument`` after some iterations."""
        type = argument.type
        if not type.is_pointer and (not type.is_integer or type.scalar.bits < 32):
            return None
        first = self.of(loop.inits[argument.index - 1])
        growth = self._growth(loop, argument)
        if first is None or growth is None:
            return None
        offset = growth.offset * trips
        if type.is_pointer or type.scalar.bits > 32:
            offset = offset.widened()
        return first.with_offset(first.offset + offset, growth)

    def _bounds(self, loop: For) -> tuple[Polynomial, Polynomial] | tuple[None, None]:
        lower, step = self.of(loop.lower), self.of(loop.step)
        if lower is None or step is None or lower.guards or step.guards:
            return None, None
        return lower.offset, step.offset

    def with_indices(self, polynomial: Polynomial) -> Polynomial:
        """Trip counts times the step of their loop written as loop index minus lower bound."""
        total = ZERO
        for monomial, term in polynomial.terms.items():
            total += self._with_indices(monomial, term)
        return total

    def _with_indices(self, monomial: Monomial, term: Term) -> Polynomial:
        for index in monomial:
            held = self.unknowns[index]
            if not isinstance(held, Trips) or held.all:
                continue
            lower, step = self._bounds(held.loop)
            if lower is None or step is None or len(step.terms) != 1:
                continue
            ((factor, size),) = step.terms.items()
            rest = Polynomial({without(monomial, (index,)): term}).quotient(factor, size.coefficient)
            if rest:
                return self.with_indices(rest * (self.unknowns.scalar(held.loop.body.args[0]) - lower))
        return Polynomial({monomial: term})

    def _growth(self, loop: For, argument: Value) -> Form | None:
        """What one iteration adds to ``argument``, if that is the same in all of them."""
        end = loop.body.terminator
        value = end.values[argument.index - 1] if isinstance(end, Yield) else None
        total = Form(ZERO)
        while value is not argument:
            op = value.op if value is not None else None
            step: Value | None
            sign = 1
            match op:
                case e.AddPtr():
                    value, step = op.pointer, op.offset
                case e.Add() if op.lhs is argument or self._leads_to(op.lhs, argument):
                    value, step = op.lhs, op.rhs
                case e.Add():
                    value, step = op.rhs, op.lhs
                case e.Sub() if argument.type.is_integer and argument.type.scalar.is_signed:
                    value, step, sign = op.lhs, op.rhs, -1
                case e.Hint():
                    value, step = op.x, None
                case _:
                    return None
            if step is None:
                continue
            added = self._invariant(step, loop)
            if added is None:
                return None
            total = total.with_offset(total.offset + added.offset * number(sign), added)
        return total

    def _leads_to(self, value: Value, argument: Value) -> bool:
        op = value.op
        while isinstance(op, e.Add | e.Sub | e.Hint):
            if argument in op.operands:
                return True
            op = op.operands[0].op
        return False

    def _invariant(self, value: Value, loop: For) -> Form | None:
        if value in self._busy:
            return None
        self._busy.add(value)
        form = self.of(value)
        self._busy.discard(value)
        return None if form is None or self.unknowns.changes_in(form.offset, loop) else form

    # Remainders ----------------------------------------------------------------------------------------------

    def remainder(self, op: e.Rem) -> Form | None:
        """``(start + i) % m`` is ``start % m + i`` for i below n, if start and m are multiples of n and start >= 0."""
        left, right = self.of(op.lhs), self.of(op.rhs)
        if left is None or right is None or not op.lhs.type.rank:
            return None
        lanes = [u for u in left.offset.unknowns if u < 0]
        if len(lanes) > 1 or any(u < 0 for u in right.offset.unknowns):
            return None
        guards = left.guards | right.guards
        run = ZERO
        if lanes:
            dim = coordinate(lanes[0])  # its own inverse
            slope = left.offset.slope(lanes[0])
            if slope is None or slope.constant != 1:
                return None
            run = unknown(lanes[0])
            proof = self._runs(op, left.offset - run, right.offset, dim)
            if proof is None:
                return None
            guards |= proof
        start = self._new_remainder(op, left.offset - run, right.offset, guards)
        return Form(self.unknowns.scalar(start) + run, None, guards)

    def _runs(self, op: e.Rem, start: Polynomial, divisor: Polynomial, dim: int) -> Guards | None:
        size = op.lhs.type.shape[dim]
        facts = self.facts[op.lhs]
        aligned: Guards | None = NONE
        if facts.contiguity[dim] < size or facts.divisibility[dim] < size:
            aligned = self.signs.multiple(start, size)
        proofs = (aligned, self.signs.nonnegative(start), self.signs.multiple(divisor, size))
        if any(proof is None for proof in proofs):
            return None
        return NONE.union(*(proof for proof in proofs if proof is not None))

    def _new_remainder(self, op: e.Rem, start: Polynomial, divisor: Polynomial, guards: Guards) -> Value:
        """The scalar ``start % divisor``, computed where the tile of remainders is: loops need not repeat it."""
        emit = ScalarCode(self.unknowns, op.location)
        elem = op.result.type.scalar
        sides = [emit.value(self.with_indices(p), elem) for p in (start, divisor)]
        made = emit.add(e.Rem(*sides))
        for new in emit.ops:
            self.unknowns.adopt(new, op)
        self.placed.setdefault(op, []).extend(emit.ops)
        if self.signs.nonnegative(start) is not None:
            self.signs.assume_nonnegative(made, guards)
        return made

    # Masks ---------------------------------------------------------------------------------------------------

    def condition(self, mask: Value) -> Inequalities | None:
        """``mask`` as a conjunction of inequalities; None if it is something else."""
        op = mask.op
        match op:
            case e.Constant() if op.value:
                return Inequalities(())
            case e.And():
                left, right = self.condition(op.lhs), self.condition(op.rhs)
                if left is None or right is None:
                    return None
                return Inequalities((*left.positive, *right.positive), left.guards | right.guards)
            case e.Compare():
                return self._comparison(op)
            case s.Splat() | s.Broadcast() | s.ExpandDims() | s.Permute() | s.Reshape():
                names, inner = _view(op), self.condition(op.x)
                if names is None or inner is None:
                    return None
                return replace(inner, positive=tuple(p.renamed(names) for p in inner.positive))
        return None

    def implied(self, mask: Value) -> tuple[Polynomial, ...]:
        """What is above zero, whatever the arguments, where ``mask`` is true; there may be more."""
        op = mask.op
        if isinstance(op, e.And):
            return (*self.implied(op.lhs), *self.implied(op.rhs))
        condition = self.condition(mask)
        return () if condition is None or condition.guards else condition.positive

    def _comparison(self, op: e.Compare) -> Inequalities | None:
        left, right = self.of(op.lhs), self.of(op.rhs)
        if left is None or right is None or not op.lhs.type.is_integer:
            return None
        if op.predicate in ("gt", "ge"):
            left, right = right, left
        elif op.predicate not in ("lt", "le"):
            return None
        more = number(int(op.predicate in ("le", "ge")))
        return Inequalities((right.offset - left.offset + more,), left.guards | right.guards)


# Operations --------------------------------------------------------------------------------------------------

_Rule = Callable[..., Form | None]


def _view(op: Op) -> dict[int, int] | None:
    """Which coordinate becomes which, for operations that change a tile's shape."""
    moved: Sequence[tuple[int, int]]
    match op:
        case s.Splat() | s.Broadcast():  # a dimension of size 1 has no coordinate
            return {}
        case s.ExpandDims():
            moved = [(d, d + 1) for d in range(op.axis, op.x.type.rank)]
        case s.Permute():
            moved = [(old, new) for new, old in enumerate(op.order)]
        case s.Reshape():
            kept = [[d for d, n in enumerate(shape) if n > 1] for shape in (op.x.type.shape, op.shape)]
            if [op.x.type.shape[d] for d in kept[0]] != [op.shape[d] for d in kept[1]]:
                return None
            moved = list(zip(*kept, strict=True))
        case _:
            return None
    return {coordinate(old): coordinate(new) for old, new in moved}


def _viewed(op: s.Splat | s.Broadcast | s.ExpandDims | s.Permute | s.Reshape, forms: Forms) -> Form | None:
    names, inner = _view(op), forms.of(op.x)
    return None if names is None or inner is None else inner.with_offset(inner.offset.renamed(names))


def _constant(op: e.Constant, forms: Forms) -> Form | None:
    return None if op.type.is_pointer else Form(number(int(op.value)))


def _arange(op: s.Arange, forms: Forms) -> Form:
    run = unknown(coordinate(0)) if op.end - op.start > 1 else ZERO
    return Form(number(op.start) + run)


def _arithmetic(op: e.Binary, forms: Forms) -> Form | None:
    left, right = forms.of(op.lhs), forms.of(op.rhs)
    if left is None or right is None:
        return None
    if isinstance(op, e.Sub) and (not op.lhs.type.scalar.is_signed or forms.facts[op.result].nonnegative):
        return None  # unsigned differences may wrap on purpose; of others the terms hide that they are not negative
    match op:
        case e.Add():
            offset = left.offset + right.offset
        case e.Sub():
            offset = left.offset - right.offset
        case e.Mul():
            if len(left.offset.terms) * len(right.offset.terms) > _LARGEST:
                return None
            offset = left.offset * right.offset
            offset = offset.widened() if op.lhs.type.scalar.bits > 32 else offset
        case _:
            return None
    return left.with_offset(offset, right)


def _shifted(op: e.Shl, forms: Forms) -> Form | None:
    amount, x = forms.facts[op.rhs].constant, forms.of(op.lhs)
    if x is None or amount is None or not 0 <= amount < 31:
        return None
    offset = x.offset * number(1 << amount)
    return x.with_offset(offset.widened() if op.lhs.type.scalar.bits > 32 else offset)


def _divided(op: e.IntDiv, forms: Forms) -> Form | None:
    """Exact divisions by constants; scalars are unknowns otherwise."""
    divisor, x = forms.facts[op.rhs].constant, forms.of(op.lhs)
    if x is None or not divisor or any(t.coefficient % divisor for t in x.offset.terms.values()):
        return None
    return x.with_offset(x.offset.quotient((), divisor))


def _negated(op: e.Neg, forms: Forms) -> Form | None:
    x = forms.of(op.x)
    return x.with_offset(-x.offset) if x is not None and op.x.type.scalar.is_signed else None


def _cast(op: e.Cast, forms: Forms) -> Form | None:
    source, target = op.x.type.scalar, op.result.type.scalar
    if not source.is_integer or source.bits < 32 or target.bits < source.bits:
        return None
    x = forms.of(op.x)
    if source.is_signed == target.is_signed or target.bits > source.bits and not source.is_signed:
        return x
    # The same number, unless it was below zero or is too large.
    return x if source.is_signed and forms.facts[op.x].nonnegative else None


def _hint(op: e.Hint, forms: Forms) -> Form | None:
    return forms.of(op.x)


def _remainder(op: e.Rem, forms: Forms) -> Form | None:
    return forms.remainder(op)


def _moved(op: e.AddPtr, forms: Forms) -> Form | None:
    pointer, offset = forms.of(op.pointer), forms.of(op.offset)
    if pointer is None or offset is None:
        return None
    return pointer.with_offset(pointer.offset + offset.offset, offset)


_RULES: dict[type[Op], _Rule] = {
    e.Constant: _constant,
    s.Arange: _arange,
    **dict.fromkeys((s.Splat, s.Broadcast, s.ExpandDims, s.Permute, s.Reshape), _viewed),
    **dict.fromkeys((e.Add, e.Sub, e.Mul), _arithmetic),
    e.Shl: _shifted,
    e.IntDiv: _divided,
    e.Neg: _negated,
    e.Cast: _cast,
    e.Hint: _hint,
    e.Rem: _remainder,
    e.AddPtr: _moved,
}
