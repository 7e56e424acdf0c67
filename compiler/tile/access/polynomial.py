"""Polynomials with integer coefficients over numbered unknowns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

#: The unknowns that are multiplied, ascending; () is the constant term. Coordinate d of a tile is unknown -1 - d,
#: scalars are 0 and above.
Monomial = tuple[int, ...]


class Term(NamedTuple):
    """A coefficient; ``wide`` says that the term was computed in 64 bits and may not fit into 32."""

    coefficient: int
    wide: bool = False


class Polynomial:
    """An immutable sum of terms, none of them zero; ``==`` compares coefficients alone."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, Term]) -> None:
        self.terms = {monomial: term for monomial, term in terms.items() if term.coefficient}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self._plain() == other._plain()

    def __hash__(self) -> int:
        return hash(frozenset(self._plain().items()))

    def _plain(self) -> dict[Monomial, int]:
        return {monomial: term.coefficient for monomial, term in self.terms.items()}

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for monomial, term in other.terms.items():
            _accumulate(terms, monomial, term)
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return Polynomial({m: Term(-t.coefficient, t.wide) for m, t in self.terms.items()})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Monomial, Term] = {}
        for a, x in self.terms.items():
            for b, y in other.terms.items():
                product = Term(x.coefficient * y.coefficient, x.wide or y.wide)
                _accumulate(terms, tuple(sorted((*a, *b))), product)
        return Polynomial(terms)

    @property
    def constant(self) -> int | None:
        """The number that this is, if it has no unknowns."""
        if not self.terms:
            return 0
        return self.terms[()].coefficient if self.terms.keys() == {()} else None

    @property
    def unknown(self) -> int | None:
        """The unknown that this is, if it is nothing but one."""
        if len(self.terms) != 1:
            return None
        ((monomial, term),) = self.terms.items()
        return monomial[0] if len(monomial) == 1 and term.coefficient == 1 else None

    @property
    def unknowns(self) -> set[int]:
        """Every unknown that occurs, coordinates included."""
        return {unknown for monomial in self.terms for unknown in monomial}

    def widened(self) -> Polynomial:
        """The same, computed in 64 bits."""
        return Polynomial({m: Term(t.coefficient, True) for m, t in self.terms.items()})

    def where(self, wanted: Callable[[Monomial, Term], bool]) -> Polynomial:
        """The terms for which ``wanted`` is true."""
        return Polynomial({m: t for m, t in self.terms.items() if wanted(m, t)})

    def renamed(self, names: Mapping[int, int]) -> Polynomial:
        """Other unknowns in the place of some, different ones for different ones."""
        return Polynomial({tuple(sorted(names.get(u, u) for u in m)): t for m, t in self.terms.items()})

    def with_value(self, unknown: int, value: Polynomial) -> Polynomial:
        """``value`` in the place of ``unknown``."""
        made = self.where(lambda m, _: unknown not in m)
        for monomial, term in self.terms.items():
            if unknown in monomial:
                product = Polynomial({tuple(u for u in monomial if u != unknown): term})
                for _ in range(monomial.count(unknown)):
                    product *= value
                made += product
        return made

    def slope(self, unknown: int) -> Polynomial | None:
        """What ``unknown`` is multiplied with; None if it occurs in a power."""
        terms: dict[Monomial, Term] = {}
        for monomial, term in self.terms.items():
            if monomial.count(unknown) > 1:
                return None
            if unknown in monomial:
                terms[without(monomial, (unknown,))] = term
        return Polynomial(terms)

    def quotient(self, monomial: Monomial, coefficient: int) -> Polynomial:
        """The terms that ``coefficient * monomial`` divides, divided by it."""
        terms: dict[Monomial, Term] = {}
        for held, term in self.terms.items():
            if term.coefficient % coefficient == 0 and divides(monomial, held):
                terms[without(held, monomial)] = Term(term.coefficient // coefficient, term.wide)
        return Polynomial(terms)


ZERO = Polynomial({})


def number(value: int) -> Polynomial:
    """The constant ``value``."""
    return Polynomial({(): Term(value)})


def unknown(index: int, wide: bool = False) -> Polynomial:
    """The unknown ``index`` itself."""
    return Polynomial({(index,): Term(1, wide)})


def coordinate(dim: int) -> int:
    """The unknown that stands for an element's index along dimension ``dim`` of its tile."""
    return -1 - dim


def divides(monomial: Monomial, other: Monomial) -> bool:
    """Whether every unknown of ``monomial`` occurs in ``other``, as often."""
    return all(other.count(u) >= monomial.count(u) for u in set(monomial))


def without(monomial: Monomial, factor: Monomial) -> Monomial:
    """``monomial`` divided by ``factor``, which divides it."""
    left = list(monomial)
    for unknown in factor:
        left.remove(unknown)
    return tuple(left)


def _accumulate(terms: dict[Monomial, Term], monomial: Monomial, term: Term) -> None:
    held = terms.get(monomial)
    terms[monomial] = term if held is None else Term(held.coefficient + term.coefficient, held.wide or term.wide)
