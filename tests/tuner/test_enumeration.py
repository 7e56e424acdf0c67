"""Walking constrained products against the plain product: what is found and counted, and how few steps it takes."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from deuteron.tuner.enumeration import Component, Conjunct, Meter, TooManySteps, components, walk
from deuteron.tuner.expression import Expression


def conjuncts(*texts: str) -> list[Conjunct]:
    return [Conjunct(Expression.parse(text), text) for text in texts]


AXES = [("A", tuple(range(6))), ("B", (1, 2, 4)), ("C", ("x", "y")), ("D", tuple(range(5)))]
CONSTRAINTS = ["A % B == 0", "C == 'x' or D > 2", "A + D <= LIMIT", "B < 4"]


def brute_force(texts: list[str], limit: int) -> list[dict[str, object]]:
    """Every point of the product that Python's own ``eval`` finds valid."""
    names = [name for name, _ in AXES]
    points = (dict(zip(names, values, strict=True)) for values in itertools.product(*(c for _, c in AXES)))
    return [p for p in points if all(eval(t, {}, {**p, "LIMIT": limit}) for t in texts)]  # noqa: S307


@pytest.mark.parametrize("count", range(len(CONSTRAINTS) + 1))
def test_a_walk_finds_what_the_product_has_in_its_order(count) -> None:
    for texts in itertools.combinations(CONSTRAINTS, count):
        found = list(walk(AXES, conjuncts(*texts), {"LIMIT": 5}))
        assert found == brute_force(list(texts), 5)


def test_every_point_is_struck_once_by_the_first_constraint_that_it_breaks() -> None:
    struck: Counter[str] = Counter()
    found = list(walk(AXES, conjuncts(*CONSTRAINTS), {"LIMIT": 5}, struck=struck))
    total = 6 * 3 * 2 * 5
    assert len(found) + struck.total() == total
    # Known with B: the 30 points of each broken pair or value go at once.
    assert struck["A % B == 0"] == 10 * sum(a % b != 0 for a in range(6) for b in (1, 2, 4))
    assert struck["B < 4"] == 10 * sum(a % 4 == 0 for a in range(6))
    struck.clear()
    assert not list(walk(AXES, conjuncts("LIMIT > 9"), {"LIMIT": 5}, struck=struck))
    assert struck == {"LIMIT > 9": total}


def test_a_constraint_prunes_as_soon_as_its_names_are_known() -> None:
    axes = [(name, tuple(range(100))) for name in "ABC"]
    rules = conjuncts("A < 2", "A + B < 1")
    # Three steps a choice, and one a node of each condition that is evaluated there.
    steps = 100 * (3 + 3) + 200 * (3 + 5) + 100 * 3
    assert len(list(walk(axes, rules, {}, meter=Meter(steps)))) == 100
    with pytest.raises(TooManySteps):
        list(walk(axes, rules, {}, meter=Meter(steps - 1)))


def test_long_conditions_are_as_much_work_as_many_choices() -> None:
    axes = tuple((name, tuple(range(200))) for name in "AB")
    short, long = (Component(axes, tuple(conjuncts(text + " >= 0")), {}) for text in ("A*B", "+".join(["A*B"] * 38)))
    assert short.size == 200 * 200
    assert long.size is None
    assert long.sample(random.Random(0)) is not None


def test_parameters_are_related_through_third_ones() -> None:
    """A chain of four in every order of its links and with every assignment of the names, for their order is open."""
    axes = [(name, (1, 2)) for name in "ABCDEF"]
    for a, b, c, d in itertools.permutations("ABCD"):
        for order in itertools.permutations([f"{a} < {b}", f"{c} < {d}", f"{b} < {c}"]):
            groups = components(axes, conjuncts(*order, "F > 0"), {})
            assert [group.names for group in groups] == [("A", "B", "C", "D"), ("E",), ("F",)]
            assert sum(len(group.conjuncts) for group in groups) == 4


@pytest.mark.parametrize("large", [False, True], ids=["listed", "by rejection"])
def test_samples_are_valid_and_reach_everything(large) -> None:
    rng = random.Random(0)
    if not large:
        component = Component(tuple(AXES), tuple(conjuncts(*CONSTRAINTS)), {"LIMIT": 5})
        wanted = brute_force(CONSTRAINTS, 5)
        drawn = [component.sample(rng) for _ in range(60 * len(wanted))]
        assert all(point in wanted for point in drawn)
        assert all(point in drawn for point in wanted)
        return
    axes = tuple((name, tuple(range(1000))) for name in "ABC")
    component = Component(axes, tuple(conjuncts("A + B < 1500", "C >= A", "B % 2 == 0")), {})
    assert component.size is None
    for _ in range(200):
        point = component.sample(rng)
        assert point is not None
        assert point["A"] + point["B"] < 1500 and point["C"] >= point["A"] and point["B"] % 2 == 0
