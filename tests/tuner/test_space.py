from __future__ import annotations

import itertools
import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.tuner.errors import ExpressionError, SchemaError, SpaceError
from deuteron.tuner.expression import Expression
from deuteron.tuner.space import Parameter, Space, config_key

SMALL = Space(
    (Parameter("a", (1, 2, 4)), Parameter("b", (1, 2, 4)), Parameter("c", ("x", "y"))),
    ("a * b <= 4 and a >= b", "c == 'x' or a > 1"),
)


def brute_force(space: Space) -> list[dict[str, object]]:
    points = itertools.product(*(p.choices for p in space.parameters))
    configs = [dict(zip(space.names, point, strict=True)) for point in points]
    return [
        config
        for config in configs
        if all(Expression.parse(text).evaluate({**space.constants, **config}) for text in space.constraints)
    ]


def test_enumeration_is_the_filtered_product_in_order() -> None:
    assert list(SMALL.configurations()) == brute_force(SMALL)
    assert SMALL.count() == len(brute_force(SMALL)) < SMALL.cartesian_size


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    count = draw(st.integers(1, 4))
    parameters = tuple(
        Parameter(f"p{i}", tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True))))
        for i in range(count)
    )
    name = st.sampled_from([p.name for p in parameters] + ["k"])
    constraint = st.builds(
        lambda x, op, y, bound: f"{x} {op} {y} <= {bound}",
        name,
        st.sampled_from(["+", "*", "-"]),
        name,
        st.integers(0, 40),
    )
    return Space(parameters, tuple(draw(st.lists(constraint, max_size=3))), {"k": 3})


@settings(derandomize=True, deadline=None, max_examples=150)
@given(spaces(), st.integers(0, 2**32))
def test_enumeration_count_and_samples_agree_with_brute_force(space: Space, seed: int) -> None:
    expected = brute_force(space)
    assert list(space.configurations()) == expected
    assert space.count() == len(expected)
    if not expected:
        with pytest.raises(SpaceError, match="no configuration satisfies"):
            space.default()
        return
    assert space.contains(space.default())
    assert space.contains(space.sample(random.Random(seed)))
    assert Space.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_samples_are_uniform() -> None:
    rng = random.Random(7)
    counts = Counter(config_key(SMALL.sample(rng)) for _ in range(7000))
    expected = 7000 / len(brute_force(SMALL))
    assert len(counts) == len(brute_force(SMALL))
    # chi-square with 6 degrees of freedom exceeds 22.5 with probability 0.001
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < 22.5


def test_huge_products_are_counted_and_sampled_without_walking_them() -> None:
    choices = tuple(range(100))
    independent = Space(tuple(Parameter(f"p{i}", choices) for i in range(20)), ("p0 < p1",))
    assert independent.count() == (100 * 99 // 2) * 100**18
    config = independent.sample(random.Random(1))
    assert independent.contains(config)
    tied = Space(
        tuple(Parameter(f"p{i}", choices) for i in range(12)),
        (" + ".join(f"p{i}" for i in range(12)) + " <= 300",),
    )
    assert tied.count() is None
    assert tied.contains(tied.sample(random.Random(1)))


def test_a_group_too_large_and_too_sparse_to_sample_is_an_error_not_a_hang() -> None:
    terms = " + ".join(f"p{i}" for i in range(6))
    space = Space(tuple(Parameter(f"p{i}", tuple(range(1, 60))) for i in range(6)), (f"{terms} < 1",))
    with pytest.raises(SpaceError, match="too large to list"):
        space.default()
    with pytest.raises(SpaceError, match="steps apart"):
        next(space.configurations())


THIN = Space(
    tuple(Parameter(f"p{i}", tuple(range(1, 33)), first) for i, first in enumerate((32, 32, 4, 1, 1, 1))),
    ("p0 * p1 * p2 * p3 * p4 * p5 == 4096", "p0 >= p1"),
)


def test_a_valid_default_is_enough_to_draw_from_a_group_that_draws_do_not_hit() -> None:
    """1,976 of 32^6 points are valid: neither points at random nor branches at random lead to one."""
    assert THIN.count() is None
    drawn = list(itertools.islice(THIN.samples(random.Random(0)), 400))
    assert all(map(THIN.contains, drawn))
    assert len({config_key(config) for config in drawn}) > 80
    assert all({config[name] for config in drawn} == {1, 2, 4, 8, 16, 32} for name in THIN.names)
    assert drawn == list(itertools.islice(THIN.samples(random.Random(0)), 400))
    assert THIN.contains(THIN.sample(random.Random(1)))


def test_the_only_valid_point_is_drawn_again_and_again() -> None:
    only = Space(
        THIN.parameters, (f"{THIN.constraints[0]} and p0 == p1 + p4 * 31 - 31 and p2 * p3 == 4 and p0 * p2 > 127",)
    )
    assert [only.sample(random.Random(seed)) for seed in range(2)] == 2 * [THIN.default()]


def test_a_group_that_draws_do_not_hit_needs_a_valid_default() -> None:
    falling = tuple(Parameter(p.name, p.choices[::-1]) for p in THIN.parameters)
    space = Space(falling, THIN.constraints)
    with pytest.raises(SpaceError, match="too large to list") as error:
        space.sample(random.Random(0))
    assert "give a default" in str(error.value)
    started = space.starting_from(THIN.default())
    assert started.default() == THIN.default() and started.contains(started.sample(random.Random(0)))


def test_a_space_starts_from_a_configuration_whose_conditions_hold_as_before() -> None:
    space = Space((Parameter("a", (0, 1)), Parameter("b", (5, 6, 7), when="a == 1"), Parameter("c", (2, 3))))
    started = space.starting_from({"a": 1, "b": 7, "c": 3})
    assert list(started.configurations()) == list(space.configurations())
    assert started.default() == {"a": 1, "b": 5, "c": 3}


@pytest.mark.parametrize("choice", [float("inf"), float("nan"), 1 << 63, -(1 << 70)])
def test_choices_are_numbers_that_json_holds(choice: float) -> None:
    with pytest.raises(SpaceError, match=f"'A' has the choice {choice!r}"):
        Parameter("A", (1, choice))


def test_constraints_have_a_length_together() -> None:
    parameters = tuple(Parameter(name, (1, 2)) for name in "AB")
    with pytest.raises(SpaceError, match="have 10501 names, numbers and operators; at most 10000"):
        Space(parameters, tuple(" + ".join(["A * B"] * 30) + f" > {i}" for i in range(-86, 0)) + ("A < 3",) * 3)


@pytest.mark.parametrize("text", ["'a'", "BLOCK > 1 and 'BLOCK < 64'"])
def test_a_text_is_no_constraint(text: str) -> None:
    """It would be true, as quotes around a condition are by mistake."""
    with pytest.raises(SpaceError, match="is a text, which is no condition"):
        Space((Parameter("BLOCK", (16, 32, 64)),), (text,))


def test_contradiction_names_the_worst_constraint() -> None:
    space = Space(
        (Parameter("BLOCK", (16, 32, 64)), Parameter("WARPS", (1, 2, 4))),
        ("BLOCK >= 32", "BLOCK % 48 == 0"),
    )
    with pytest.raises(SpaceError) as caught:
        space.default()
    assert "'BLOCK % 48 == 0' strikes out 2 of 3" in str(caught.value)
    assert "'BLOCK >= 32' strikes out 1 of 3" in str(caught.value)
    assert "WARPS" not in str(caught.value)


def test_facts_bind_to_constraints() -> None:
    space = Space((Parameter("BLOCK", (64, 128, 256)),), ("BLOCK <= n",))
    assert space.free_names == {"n"}
    with pytest.raises(ExpressionError, match="neither a parameter nor a known fact"):
        space.default()
    assert space.bind({"n": 128}).count() == 2
    with pytest.raises(SpaceError, match="strikes out 3 of 3"):
        space.bind({"n": 1}).default()


def test_conditional_parameter_keeps_its_default_where_it_has_no_effect() -> None:
    space = Space(
        (
            Parameter("split", (1, 2)),
            Parameter("order", ("row", "column"), when="split > 1"),
        )
    )
    assert [(c["split"], c["order"]) for c in space.configurations()] == [
        (1, "row"),
        (2, "row"),
        (2, "column"),
    ]


def test_nearest_keeps_the_longest_valid_prefix() -> None:
    assert SMALL.nearest({"a": 4, "b": 1, "c": "y"}) == {"a": 4, "b": 1, "c": "y"}
    assert SMALL.nearest({"a": 2, "b": 4, "c": "y"}) == {"a": 2, "b": 1, "c": "y"}
    assert SMALL.nearest({"a": 77}) == {"a": 1, "b": 1, "c": "x"}


def test_violations_give_reasons() -> None:
    assert SMALL.violations({"a": 1, "b": 1, "c": "x"}) == []
    assert SMALL.violations({"a": 1, "b": 1}) == ["c is missing"]
    assert SMALL.violations({"a": True, "b": 1, "c": "x"}) == ["a=True is not a choice"]
    assert SMALL.violations({"a": 1, "b": 1, "c": "x", "d": 1}) == ["unknown parameter 'd'"]
    assert SMALL.violations({"a": 1, "b": 1, "c": "y"}) == ["c == 'x' or a > 1"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"parameters": []}, "1 to 64 parameters"),
        ({"parameters": {"a": []}}, "no choices"),
        ({"parameters": {"a": [1, 1]}}, "twice"),
        ({"parameters": {"a b": [1]}}, "cannot name a parameter"),
        ({"parameters": {"a": [1]}, "constraints": ["a <"]}, "not an expression"),
        ({"parameters": {"a": [1]}, "constraint": []}, "unknown field 'constraint'"),
        ({"parameters": {"a": [[1]]}}, r"space.parameters.a\[0\]: expected a number"),
        ({"parameters": [{"name": "a", "choices": [1], "default": 2}]}, "not one of its choices"),
        ({}, "'parameters' is missing"),
        ([], "expected an object"),
    ],
)
def test_malformed_spaces(value: object, message: str) -> None:
    with pytest.raises((SpaceError, SchemaError, ExpressionError), match=message):
        Space.from_json(value)


def test_config_key_is_canonical() -> None:
    assert config_key({"b": 1, "a": "x"}) == config_key({"a": "x", "b": 1})
    assert config_key({"a": 1}) != config_key({"a": True})
