"""The nearest of many shapes, against a plain search."""

from __future__ import annotations

import random

import pytest

from deuteron.tuner.job import shape_key
from deuteron.tuner.records.lookup import FARTHEST
from deuteron.tuner.records.nearest import ShapeSet, shape_distance


@pytest.mark.parametrize("count", [1, 2, 63, 64, 300])
@pytest.mark.parametrize("sizes", [(1, 2, 4, 64, 128), (1, 3, 5, 100, 4095, 4096, 1 << 70)])
def test_the_nearest_is_that_of_a_plain_search(count: int, sizes: tuple[int, ...]) -> None:
    """Many shapes are at the same distance: the smaller key wins."""
    choose = random.Random(count)
    made = [{dim: choose.choice(sizes) for dim in "MNKL"} for _ in range(count)]
    shapes = {shape_key(shape): shape for shape in made}
    known = ShapeSet()
    for key, shape in shapes.items():
        known.add(key, shape)
    assert len(known) == len(shapes) and known.some() == next(iter(shapes))
    for _ in range(50):
        asked = {dim: choose.choice([1, 2, 7, 64, 90, 1 << 40]) for dim in "LKMN"}
        order = sorted(shapes, key=lambda key: (shape_distance(shapes[key], asked), key))
        near = [key for key in order if shape_distance(shapes[key], asked) <= FARTHEST]
        found = list(known.by_distance(asked))
        assert (found[0], found[: len(near)], sorted(found)) == (order[0], near, sorted(order))
        assert known.nearest(asked) == order[0]
    assert known.nearest({"M": 1, "N": 1}) is None


def test_shapes_without_sizes_and_none_at_all() -> None:
    known = ShapeSet()
    assert known.some() is None and known.nearest({}) is None and len(known) == 0
    known.add("", {})
    assert known.some() == known.nearest({}) == ""
