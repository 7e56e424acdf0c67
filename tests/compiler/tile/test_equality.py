"""What is said of equal addresses, against all the numbers there are."""

from __future__ import annotations

import itertools
import random

import pytest

from deuteron.compiler.ir import Function
from deuteron.compiler.ir.types import I32, Tile
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.tile.access.equality import Equality
from deuteron.compiler.tile.access.polynomial import ZERO, Polynomial, coordinate, number, unknown
from deuteron.compiler.tile.access.signs import Signs
from deuteron.compiler.tile.access.unknowns import Unknowns
from deuteron.compiler.tile.axis import analyze

#: Divisors that are promised of three scalars, and the values that are tried for them.
PROMISED = (1, 1, 4)
VALUES = ((-2, 0, 1, 3, 5), (0, 1, 2, 7), (-8, 0, 4, 8))
C, D, C2, D2 = map(coordinate, range(4))


@pytest.fixture(scope="module")
def scalars() -> tuple[Signs, list[int]]:
    """Three scalars, of which the second is not negative, and the third a multiple of 4."""
    function = Function("f")
    held = [function.add_parameter(f"p{i}", Tile(I32), promised) for i, promised in enumerate(PROMISED)]
    unknowns = Unknowns(function)
    signs = Signs(unknowns, analyze(function, nonnegative=[held[1]]), frozenset())
    return signs, [unknowns.scalar(value).unknown for value in held]  # type: ignore[misc]


def _value(polynomial: Polynomial, known: dict[int, int]) -> int:
    total = 0
    for monomial, term in polynomial.terms.items():
        product = term.coefficient
        for index in monomial:
            product *= known[index]
        total += product
    return total


def _lane(index: int, scale: int | Polynomial = 1) -> Polynomial:
    return unknown(index) * (number(scale) if isinstance(scale, int) else scale)


def test_what_can_be_said(scalars) -> None:
    signs, (p, q, r) = scalars
    sizes = {C: 8, D: 4, C2: 8, D2: 4}
    any_p, any_r = unknown(p), unknown(r)

    def equal(zero: Polynomial, *positive: Polynomial):
        return Equality(signs, sizes, positive).equal(zero)

    across = _lane(C) - _lane(C2)
    same, both = frozenset({(C, C2)}), frozenset({(C, C2), (D, D2)})
    assert equal(number(8) + across) is None  # too far apart
    assert equal(number(7) + across) == frozenset()
    assert equal(across * number(3) + number(1)) is None  # every third element, and those beside them
    assert equal(across) == same
    assert equal(across + (_lane(D) - _lane(D2)) * number(8)) == both  # row and column
    assert equal(across + (_lane(D) - _lane(D2)) * number(4)) == frozenset()
    assert equal(any_r * number(2) + across) == same  # steps of 8
    assert equal(any_r + across) == frozenset()
    assert equal(any_p + _lane(C) - _lane(C2)) == frozenset()
    assert equal(any_p + across, any_p - _lane(C), any_p - _lane(C2)) is None  # both are in the first p
    rows = (_lane(D) - _lane(D2)) * any_p
    assert equal(rows + across) == frozenset()
    assert equal(rows + across, any_p - _lane(C), any_p - _lane(C2)) == both
    assert equal(across * any_p) == frozenset()  # p may be 0
    assert equal(across * any_p, any_p) == same
    assert equal(unknown(q) + number(8) + across) is None  # q is not negative
    assert equal(ZERO) == frozenset()


def test_no_promise_is_made_in_the_name_of_arguments(scalars) -> None:
    signs, (p, _, _) = scalars
    assert signs.nonnegative(unknown(p)) == frozenset({Guard("p0", "least", 0)})
    assert Equality(signs, {C: 4}, ()).equal(unknown(p) + _lane(C) + number(1)) == frozenset()


def _made(rng: random.Random, unknowns: list[int]) -> Polynomial:
    total = number(rng.choice([0, 0, 1, 2, 4, 5, -3, 12]))
    for lanes in ((C, C2), (D, D2)):
        scale = number(rng.choice([1, 1, 2, 3, 4, 8]))
        if rng.random() < 0.3:
            scale *= unknown(rng.choice(unknowns))
        total += _lane(lanes[0], scale)
        other = scale if rng.random() < 0.8 else number(rng.choice([0, 1, 2, 4]))
        total -= _lane(lanes[1], other)
    for _ in range(rng.randint(0, 2)):
        total += number(rng.choice([1, 2, 4, 8, -4])) * unknown(rng.choice(unknowns))
    return total


def _condition(rng: random.Random, unknowns: list[int]) -> Polynomial:
    lane = _lane(rng.choice([C, D, C2, D2]))
    bound = rng.choice([unknown(rng.choice(unknowns)), number(rng.randint(1, 4))])
    return bound - lane if rng.random() < 0.7 else lane - bound


@pytest.mark.parametrize("block", range(4))
def test_nothing_is_said_that_numbers_refute(scalars, block) -> None:
    signs, unknowns = scalars
    said = 0
    for seed in range(block * 150, (block + 1) * 150):
        rng = random.Random(seed)
        sizes = dict(zip((C, D, C2, D2), rng.choice([(4, 4, 4, 4), (8, 2, 8, 2), (2, 4, 4, 2)]), strict=True))
        zero = _made(rng, unknowns)
        positive = [_condition(rng, unknowns) for _ in range(rng.randint(0, 3))]
        pairs = Equality(signs, sizes, positive).equal(zero)
        said += pairs is None or bool(pairs)
        if pairs == frozenset():
            continue
        for values in itertools.product(*VALUES):
            known = dict(zip(unknowns, values, strict=True))
            for places in itertools.product(*(range(size) for size in sizes.values())):
                known.update(zip(sizes, places, strict=True))
                if _value(zero, known) == 0 and all(_value(p, known) > 0 for p in positive):
                    assert pairs is not None, (seed, known)
                    assert all(known[a] == known[b] for a, b in pairs), (seed, known, pairs)
    assert said > 20
