"""Boxes: pointer tiles that are linear in their coordinates, with one range of indices per dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...ir.core import Value
from .forms import Forms
from .polynomial import ZERO, Monomial, Polynomial, coordinate, number
from .signs import NONE, Guards

#: Dimensions of an array; what tensor maps of NVIDIA GPUs take.
MOST_DIMENSIONS = 5


@dataclass(frozen=True, slots=True)
class Dimension:
    """Indices ``offset``, ``offset + 1``, ...; where there are ``sizes``, they must lie in 0 to the least of those.
    ``proven``: the offset is not negative."""

    stride: Polynomial
    offset: Polynomial
    sizes: tuple[Polynomial, ...] = ()
    proven: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """Elements ``rest`` behind ``base``, plus index times stride of every dimension; true under ``guards``."""

    base: Value
    rest: Polynomial
    dimensions: tuple[Dimension, ...]
    guards: Guards


@dataclass(slots=True)
class _Limits:
    """What a mask says about coordinate c of one dimension: ``c < upper`` and ``0 <= c + lower`` for all of them."""

    uppers: list[Polynomial] = field(default_factory=list)
    lowers: list[Polynomial] = field(default_factory=list)


def find_box(forms: Forms, pointer: Value, mask: Value | None) -> Box | None:
    """The box that a masked access through ``pointer`` touches; None if there is no proof."""
    shape, form = pointer.type.shape, forms.of(pointer)
    if form is None or form.base is None or not 1 <= len(shape) <= MOST_DIMENSIONS:
        return None
    guards, limits = form.guards, [_Limits() for _ in shape]
    if mask is not None:
        condition = forms.condition(mask)
        if condition is None or not all(_sort(p, shape, limits) for p in condition.positive):
            return None
        guards |= condition.guards
    strides = _strides(form.offset, len(shape))
    if strides is None:
        return None
    scalar = form.offset.where(lambda m, _: all(u >= 0 for u in m))
    return _Search(forms, form.base, strides, limits, scalar, guards).run()


def _strides(address: Polynomial, rank: int) -> list[Polynomial] | None:
    """What an address grows by along each dimension; None if it is not linear or a dimension runs backwards."""
    strides = []
    for dim in range(rank):
        stride = address.slope(coordinate(dim))
        if stride is None or any(u < 0 for u in stride.unknowns):
            return None
        if any(term.coefficient < 0 for term in stride.terms.values()):
            return None
        strides.append(stride)
    return strides


def _sort(positive: Polynomial, shape: tuple[int, ...], limits: list[_Limits]) -> bool:
    """Put ``positive > 0`` to the dimension that it limits; False if it limits none, or several at once."""
    lanes = [u for u in positive.unknowns if u < 0]
    if len(lanes) != 1:
        value = positive.constant
        return value is not None and value > 0
    (lane,) = lanes
    slope = positive.slope(lane)
    factor = slope.constant if slope is not None else None
    if factor is None:
        return False
    dim, rest = coordinate(lane), positive.where(lambda m, _: lane not in m)
    scaled = _ceiling(rest if factor < 0 else rest + number(-1), abs(factor), up=factor < 0)
    if scaled is None:
        return False
    if factor < 0:
        value = scaled.constant
        if value is None or value < shape[dim]:  # else it is true of every element
            limits[dim].uppers.append(scaled)
    else:
        limits[dim].lowers.append(scaled)
    return True


def _ceiling(polynomial: Polynomial, divisor: int, *, up: bool) -> Polynomial | None:
    """``polynomial / divisor``, its constant rounded up or down; None if another coefficient is no multiple."""
    if divisor == 1:
        return polynomial
    constant = polynomial.terms[()].coefficient if () in polynomial.terms else 0
    rest = polynomial + number(-constant)
    if any(term.coefficient % divisor for term in rest.terms.values()):
        return None
    rounded = -(-constant // divisor) if up else constant // divisor
    return rest.quotient((), divisor) + number(rounded)


class _Search:
    """Shares an address among dimensions: first those of the tile, then those before them, then the base."""

    def __init__(
        self,
        forms: Forms,
        base: Value,
        strides: list[Polynomial],
        limits: list[_Limits],
        scalar: Polynomial,
        guards: Guards,
    ) -> None:
        self.forms = forms
        self.base = base
        self.strides = strides
        self.limits = limits
        self.left = scalar
        self.guards = guards

    def run(self) -> Box | None:
        found: dict[int, Dimension] = {}
        for dim in sorted(range(len(self.strides)), key=lambda d: _rank(self.strides[d])):
            made = self.dimension(self.strides[dim], self.limits[dim])
            if made is None:
                return None
            found[dim] = made
            self.left = self.left - made.stride * made.offset
        inner = tuple(found[d] for d in range(len(self.strides)))
        outer = self.leading(MOST_DIMENSIONS - len(inner))
        return Box(self.base, self.left, (*outer, *inner), self.guards)

    # Dimensions of the tile ----------------------------------------------------------------------------------

    def dimension(self, stride: Polynomial, limits: _Limits) -> Dimension | None:
        """Choose where the box begins along one dimension."""
        lowers = [p for p in dict.fromkeys(limits.lowers) if not self.is_true(p)]
        if not limits.uppers:
            if lowers:
                return None
            return Dimension(stride, self.share(stride, True))
        uppers = list(dict.fromkeys(limits.uppers))
        if lowers:
            if len(lowers) > 1:
                return None
            return Dimension(stride, lowers[0], _bounds(uppers, lowers[0]))
        starts = list(self.starts(stride, uppers))
        starts.sort(key=lambda start: self.simplicity(_bounds(uppers, start)))
        for start in starts:
            proof = self.forms.signs.nonnegative(start)
            if proof is not None:
                self.guards |= proof
                return Dimension(stride, start, _bounds(uppers, start), proven=True)
        return None

    def simplicity(self, sizes: Sequence[Polynomial]) -> tuple[int, int]:
        """Unknowns in ``sizes`` that a launcher does not know, and terms: an array's own size is one that it knows."""
        unknowns = set().union(*(size.unknowns for size in sizes))
        return sum(not self.forms.unknowns.is_host(u) for u in unknowns), sum(len(size.terms) for size in sizes)

    def is_true(self, lower: Polynomial) -> bool:
        """Whether ``0 <= c + lower`` needs no check."""
        return self.forms.signs.nonnegative(lower) == NONE

    def starts(self, stride: Polynomial, uppers: Sequence[Polynomial]) -> Iterator[Polynomial]:
        """Where the box may begin: any number is right, as long as it is not negative.

        The pointer's offset along this dimension; what the mask compares beside the coordinate; 0.
        """
        yield _as_narrow(self.share(stride, False), uppers)
        host = self.forms.unknowns.is_host
        for upper in uppers:
            yield -upper.where(lambda m, t: t.coefficient < 0 and not all(map(host, m)))
            yield -upper.where(lambda m, t: t.coefficient < 0)
        yield ZERO

    def share(self, stride: Polynomial, unchecked: bool) -> Polynomial:
        """What of the address is a multiple of ``stride``, divided by it.

        Constant strides divide nearly everything; strides of other dimensions are not taken by them.
        """
        if len(stride.terms) != 1:
            return ZERO
        ((monomial, term),) = stride.terms.items()
        host = self.forms.unknowns.is_host

        def ours(held: Monomial, _: object) -> bool:
            symbolic = [host(u) for u in held]
            return not any(symbolic) or (unchecked and all(symbolic))

        terms = self.left if monomial else self.left.where(ours)
        return terms.quotient(monomial, term.coefficient)

    # Dimensions before them ----------------------------------------------------------------------------------

    def leading(self, most: int) -> tuple[Dimension, ...]:
        """Further dimensions for what is left, if the base is a parameter and they are at most ``most``."""
        if self.base not in self.forms.unknowns.parameters:
            return ()
        groups: dict[tuple[Monomial, int], Polynomial] = {}
        host = self.forms.unknowns.is_host
        fixed = self.left.where(lambda m, _: all(map(host, m)))
        for monomial, term in (self.left - fixed).terms.items():
            factor = tuple(u for u in monomial if host(u))
            offset = Polynomial({monomial: term}).quotient(factor, abs(term.coefficient))
            key = factor, abs(term.coefficient)
            groups[key] = groups.get(key, ZERO) + offset
        made = [
            Dimension(Polynomial({factor: number(size).terms[()]}), offset) for (factor, size), offset in groups.items()
        ]
        if fixed:
            made.append(Dimension(fixed, number(1)))
        if len(made) > most:
            return ()
        self.left = ZERO
        return tuple(made)


def _rank(stride: Polynomial) -> tuple[int, int]:
    """Order in which dimensions take their share: products of parameters, parameters, large constants, small ones."""
    if len(stride.terms) != 1:
        return 1, 0
    ((monomial, term),) = stride.terms.items()
    return -len(monomial), -term.coefficient


def _bounds(uppers: Sequence[Polynomial], start: Polynomial) -> tuple[Polynomial, ...]:
    return tuple(dict.fromkeys(upper + start for upper in uppers))


def _as_narrow(start: Polynomial, uppers: Sequence[Polynomial]) -> Polynomial:
    """``start`` with the width of the terms that the mask computes, too."""
    seen = {m: t for upper in uppers for m, t in upper.terms.items()}
    terms = dict(start.terms)
    for monomial, term in terms.items():
        other = seen.get(monomial)
        if other is not None and other.coefficient == -term.coefficient:
            terms[monomial] = term._replace(wide=term.wide and other.wide)
    return Polynomial(terms)
