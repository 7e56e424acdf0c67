"""What follows where two addresses are equal: that they never are, or that coordinates are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from .polynomial import Monomial, Polynomial, divides, number, without
from .signs import NONE, Signs

#: Pairs of coordinates that are equal.
Pairs = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Equality:
    """Conclusions from a polynomial's being zero.

    ``sizes``: the coordinates, which are unknowns below zero, and how many values each has. ``positive``: what is above
    zero wherever the question arises.
    """

    signs: Signs
    sizes: Mapping[int, int]
    positive: Sequence[Polynomial]

    def equal(self, zero: Polynomial) -> Pairs | None:
        """Coordinates that are equal where ``zero`` is 0; None if it never is.

        A multiple of some factor and a rest that is smaller than the factor add up to 0 only if both are 0, as the
        digits of a number are. An address consists of such digits: a row, and a place in it.
        """
        if self._is_positive(zero) or self._is_positive(-zero) or self._leaves_rest(zero):
            return None
        for factor, size in self._factors(zero):
            rest = zero.where(lambda m, t, f=factor, n=size: not self._is_multiple(m, t.coefficient, f, n))  # type: ignore[misc]
            if rest == zero or not (rest or factor) or not self._is_below(rest, factor, size):
                continue
            parts = self.equal(rest), self.equal((zero - rest).quotient(factor, 1))
            return None if parts[0] is None or parts[1] is None else parts[0] | parts[1]
        return _pair(zero)

    def _is_positive(self, polynomial: Polynomial) -> bool:
        return self._least(polynomial) > 0 or any(self._least(polynomial - known) >= 0 for known in self.positive)

    def _least(self, polynomial: Polynomial) -> float:
        """What ``polynomial`` is not below."""
        return sum(self._least_of(m, t.coefficient) for m, t in polynomial.terms.items())

    def _least_of(self, monomial: Monomial, coefficient: int) -> float:
        scalars = Polynomial({tuple(u for u in monomial if u >= 0): number(1).terms[()]})
        if self.signs.nonnegative(scalars) != NONE:
            return -math.inf
        if not monomial or coefficient > 0:
            return 0 if monomial else coefficient
        return -math.inf if scalars.unknowns else coefficient * math.prod(self.sizes[u] - 1 for u in monomial)

    # Divisors ------------------------------------------------------------------------------------------------

    def _leaves_rest(self, zero: Polynomial) -> bool:
        """Whether a number divides all terms but the constant one."""
        rest = zero.terms.get(())
        divisor = math.gcd(*(self._divisor(m, t.coefficient) for m, t in zero.terms.items() if m))
        return rest is not None and divisor > 0 and rest.coefficient % divisor != 0

    def _divisor(self, monomial: Monomial, coefficient: int) -> int:
        return abs(coefficient) * self.signs.power_in(tuple(u for u in monomial if u >= 0))

    def _is_multiple(self, monomial: Monomial, coefficient: int, factor: Monomial, size: int) -> bool:
        return divides(factor, monomial) and self._divisor(without(monomial, factor), coefficient) % size == 0

    def _factors(self, zero: Polynomial) -> Iterator[tuple[Monomial, int]]:
        """Products of scalars, and numbers, that divide some of the terms."""
        found: dict[tuple[Monomial, int], None] = {}
        for monomial, term in zero.terms.items():
            scalars = tuple(u for u in monomial if u >= 0)
            for length in range(len(scalars), 0, -1):
                found.update(((part, abs(term.coefficient)), None) for part in combinations(scalars, length))
            if monomial:
                found[(), self._divisor(monomial, term.coefficient)] = None
        return iter(found)

    def _is_below(self, rest: Polynomial, factor: Monomial, size: int) -> bool:
        """Whether ``factor * size`` is above zero and further from it than ``rest``."""
        whole = Polynomial({factor: number(size).terms[()]})
        return self._is_positive(whole - rest) and self._is_positive(whole + rest)


def _pair(zero: Polynomial) -> Pairs:
    """Two coordinates whose difference is a factor of ``zero``, if that is nothing else."""
    if len(zero.terms) == 2:
        (first, a), (second, b) = zero.terms.items()
        if len(first) == len(second) == 1 and a.coefficient == -b.coefficient and first[0] < 0 and second[0] < 0:
            return frozenset(((max(first[0], second[0]), min(first[0], second[0])),))
    return frozenset()
