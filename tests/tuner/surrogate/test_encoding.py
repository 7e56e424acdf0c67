"""Configurations as points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.tuner.space import Parameter
from deuteron.tuner.strategies.surrogate.encoding import NEIGHBOURS, Grid, coordinates, keys, twos

numbers = st.lists(st.integers(0, 10**6), min_size=1, max_size=12, unique=True)
texts = st.lists(st.text("abc", min_size=1), min_size=1, max_size=6, unique=True)
axes = st.one_of(numbers, texts, st.just([False, True]), st.just([0.5]), st.just([-4, 2, 9]))


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    listed = draw(st.lists(axes, min_size=1, max_size=5))
    return Grid([Parameter(f"p{i}", tuple(choices)) for i, choices in enumerate(listed)])


@given(numbers)
def test_numbers_keep_their_order_and_fill_the_unit_interval(values: list[int]) -> None:
    places = coordinates(values)
    assert list(np.argsort(places)) == list(np.argsort(values))
    assert len(set(places)) == len(values)
    assert (places.min(), places.max()) == ((0, 1) if len(values) > 1 else (0, 0))


def test_powers_of_two_are_even_and_counts_are_bent_halfway() -> None:
    assert coordinates([16, 32, 64, 128]) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert coordinates([1, 2, 3, 4]) == pytest.approx([0, (1 / 3 + 0.5) / 2, (2 / 3 + np.log2(3) / 2) / 2, 1])
    assert coordinates([0, 1, 3]) == pytest.approx([0, 0.5, 1])  # log2 of 1, 2 and 4
    assert coordinates([128, 16, 64, 32]) == pytest.approx([1, 0, 2 / 3, 1 / 3])
    assert coordinates(["row", "column", "tile"]) == pytest.approx([0, 0.5, 1])
    assert coordinates([False, True]) == pytest.approx([0, 1])
    assert coordinates([-2, 0, 6]) == pytest.approx([0, 0.5, 1])
    assert coordinates([7]) == pytest.approx([0])


def test_how_often_two_divides_is_said_where_it_is_news() -> None:
    assert twos([16, 32, 48, 64]) == pytest.approx([0, 0.5, 0, 1])
    assert twos([64, 48, 32, 16.0]) == pytest.approx([1, 0, 0.5, 0])
    assert twos([1, 2, 3]) == pytest.approx([0, 1, 0])
    for known in ([1, 2, 4, 8], [8, 4, 2], [3, 5, 6], [3, 5, 7], [7]):
        assert twos(known) is None
    for other in ([0, 1, 2, 3], [-2, 1, 2, 3], [1, 2, 2.5, 3], ["1", "2", "3"], [False, True], [1, 2, float("inf")]):
        assert twos(other) is None


@given(grids(), st.integers(0, 2**32 - 1))
def test_rows_and_configurations_are_one_to_one(grid: Grid, seed: int) -> None:
    for row in grid.random(5, np.random.default_rng(seed)):
        config = grid.configuration(row)
        back = grid.levels(config)
        assert back is not None and (back == row).all()
        assert all(config[p.name] in p.choices for p in grid.parameters)
        assert grid.difference(row, row) == []


def test_values_of_another_type_or_space_have_no_row() -> None:
    grid = Grid([Parameter("a", (0, 1)), Parameter("b", (False, True))])
    assert grid.levels({"a": 1, "b": True}) is not None
    assert grid.levels({"a": True, "b": True}) is None
    assert grid.levels({"a": 1.0, "b": True}) is None
    assert grid.levels({"a": 1}) is None
    assert grid.levels({"a": 1, "b": True, "c": 1}) is None
    assert grid.levels({"a": 1, "c": True}) is None


@given(grids(), st.integers(0, 2**32 - 1))
def test_neighbours_are_all_that_differ_in_one_parameter(grid: Grid, seed: int) -> None:
    (row,) = grid.random(1, np.random.default_rng(seed))
    near = grid.neighbours(row)
    assert len({r.tobytes() for r in near}) == len(near) == int((grid.sizes - 1).sum())
    assert ((near != row).sum(1) == 1).all()
    assert ((near >= 0) & (near < grid.sizes)).all()


@given(grids(), st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_mutations_change_no_more_than_asked(grid: Grid, seed: int, changes: int) -> None:
    rng = np.random.default_rng(seed)
    (row,) = grid.random(1, rng)
    rows = grid.mutated(row, 20, changes, rng)
    assert rows.shape == (20, len(grid.sizes))
    assert ((rows != row).sum(1) <= changes).all()
    assert ((rows >= 0) & (rows < grid.sizes)).all()


@given(grids(), st.integers(0, 2**32 - 1))
def test_points_lie_in_the_unit_cube_and_are_distinct(grid: Grid, seed: int) -> None:
    rows = np.unique(grid.random(20, np.random.default_rng(seed)), axis=0)
    points = grid.points(rows)
    varied = [p.choices for p in grid.parameters if len(p.choices) > 1]
    assert points.shape == (len(rows), len(varied))
    features = grid.features(rows)
    assert features.shape == (len(rows), len(varied) + sum(twos(choices) is not None for choices in varied))
    assert ((features >= 0) & (features <= 1)).all() and (features[:, : len(varied)] == points).all()
    assert ((points >= 0) & (points <= 1)).all()
    assert len(np.unique(points, axis=0)) == len(rows) or grid.dimensions == 0


def test_the_centre_has_middle_ranks() -> None:
    grid = Grid([Parameter("a", (64, 1, 8)), Parameter("b", ("x", "y", "z", "w")), Parameter("c", (3,))])
    assert grid.configuration(grid.centre()) == {"a": 8, "b": "y", "c": 3}


def test_of_many_choices_the_nearest_and_some_others_are_neighbours() -> None:
    grid = Grid([Parameter(name, tuple(range(1024))) for name in "abcdefghij"])
    row = np.array([0, 1023, *[500] * 8], np.int16)
    rows = grid.neighbours(row)
    assert len(rows) == NEIGHBOURS and len(set(keys(rows))) == len(rows)
    assert (np.count_nonzero(rows != row, axis=1) == 1).all()
    for at, levels in enumerate(row.tolist()):
        changed = sorted(other for other in rows[:, at].tolist() if other != levels)
        nearest = sorted(range(1024), key=lambda other: abs(other - levels))[1:17]
        assert set(nearest) < set(changed) and min(changed) < 40 and max(changed) > 960
    few = Grid([Parameter("a", tuple(range(30))), Parameter("b", (True, False))])
    assert len(few.neighbours(np.array([3, 0], np.int16))) == 30
