"""Trees as arrays: evaluated as they are defined, and refused where they are no trees."""

from __future__ import annotations

import random

import numpy as np
import pytest

from deuteron.tuner.errors import SchemaError
from deuteron.tuner.prediction import Forest
from deuteron.tuner.prediction import forest as forests

# A split of feature 1 at 2.5, whose right side splits feature 0 at -1; and a lone leaf.
FOREST = {
    "roots": [0, 5],
    "feature": [1, 0, 0, 0, 0, 0],
    "threshold": [2.5, 0.0, -1.0, 0.0, 0.0, 0.0],
    "left": [1, 1, 3, 3, 4, 5],
    "right": [2, 1, 4, 3, 4, 5],
    "value": [0.0, 10.0, 0.0, 20.0, 30.0, 0.5],
}


def walk(forest: Forest, row: list[float]) -> float:
    """One row, node by node, as the class's text says."""
    total = 0.0
    for root in forest.roots:
        node = root
        while forest.left[node] != node:
            below = row[forest.feature[node]] <= forest.threshold[node]
            node = forest.left[node] if below else forest.right[node]
        total += forest.value[node]
    return total


def random_forest(seed: int, trees: int = 5, features: int = 4) -> Forest:
    """Trees of random form; thresholds among few numbers, so that rows meet them exactly."""
    drawn = random.Random(seed)
    columns: dict[str, list[float]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}

    def grow(depth: int) -> int:
        place = len(columns["feature"])
        leaf = depth == 0 or drawn.random() < 0.2
        entry = (drawn.randrange(features), drawn.choice((-1.0, 0.0, 0.5, 2.0)), place, place, drawn.gauss(0, 1) * leaf)
        for column, value in zip(columns.values(), entry, strict=True):
            column.append(value)
        if not leaf:
            columns["left"][place], columns["right"][place] = grow(depth - 1), grow(depth - 1)
        return place

    roots = [grow(drawn.randrange(7)) for _ in range(trees)]
    return Forest.from_json({"roots": roots, **columns})


def test_by_hand() -> None:
    forest = Forest.from_json(FOREST)
    rows = np.array([[0.0, 2.5], [-1.0, 2.6], [-0.9, 3.0]])
    assert forest.predict(rows).tolist() == [10.5, 20.5, 30.5]


@pytest.mark.parametrize("seed", range(8))
def test_all_rows_at_once_are_each_row_alone(seed: int) -> None:
    forest, drawn = random_forest(seed), random.Random(seed)
    rows = [[drawn.choice((-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0)) for _ in range(4)] for _ in range(30)]
    assert np.allclose(forest.predict(np.array(rows)), [walk(forest, row) for row in rows], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"left": [0, 1, 3, 3, 4, 5]}, "its own child"),
        ({"right": [0, 1, 4, 3, 4, 5]}, "child 0"),
        ({"left": [1, 1, 0, 3, 4, 5]}, "child 0; one from 3 to 4"),
        ({"left": [1, 1, 1, 3, 4, 5]}, "child 1"),
        ({"left": [1, 1, 4, 3, 4, 5]}, "two parents"),
        ({"right": [2, 1, 5, 3, 4, 5]}, "child 5"),
        ({"right": [2, 1, 999, 3, 4, 5]}, "child 999"),
        ({"right": [2, 1, -1, 3, 4, 5]}, "child -1"),
        ({"right": [2, 2, 4, 3, 4, 5]}, "its own child"),
        ({"left": [2, 1, 3, 3, 4, 5], "right": [4, 1, 3, 3, 4, 5]}, "two parents|belongs to no tree"),
        ({"roots": [0]}, "node 5 belongs to no tree"),
        ({"roots": [5, 0]}, "ascend"),
        ({"roots": [1, 5]}, "ascend"),
        ({"roots": [0, 6]}, "ascend"),
        ({"roots": [0, 0]}, "ascend"),
        ({"roots": []}, "0 trees"),
        ({"feature": [-1, 0, 0, 0, 0, 0]}, "feature -1"),
        ({"feature": [1, 0, 0]}, "entries"),
        ({"threshold": [2.5]}, "threshold has 1 entries"),
        ({"threshold": [None, 0, 0, 0, 0, 0]}, "threshold"),
        ({"threshold": [1e999, 0, 0, 0, 0, 0]}, "threshold"),
        ({"value": [float("nan"), 10, 0, 20, 30, 0.5]}, "value"),
        ({"value": [0, 10, 0, 20, 30, "1"]}, "value"),
        ({"value": [0, 10, 0, 20, 30, 1.7e308]}, r"value\[5\]"),
        ({"value": [0, 10, 0, 20, -1.7e308, 0]}, r"value\[4\]"),
        ({"value": [1.0, 10.0, 0.0, 20.0, 30.0, 0.5]}, "no leaf and has a value"),
        ({"left": [1.5, 1, 3, 3, 4, 5]}, "left"),
        ({"left": "AAAA"}, "left"),
    ],
)
def test_what_is_no_forest_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        Forest.from_json({**FOREST, **change})


def test_any_change_of_a_child_is_refused_or_ends() -> None:
    """Every walk of every forest that can be read ends at a leaf after at most as many steps as it has nodes."""
    refused = 0
    for side in ("left", "right"):
        for node in range(6):
            for child in range(-1, 7):
                arrays = {name: list(values) for name, values in FOREST.items()}
                arrays[side][node] = child
                try:
                    forest = Forest.from_json(arrays)
                except SchemaError:
                    refused += 1
                else:
                    assert forest.predict(np.zeros((1, 2))).shape == (1,)
                    assert arrays == FOREST
    assert refused == 2 * 6 * 8 - 12


def test_too_deep_or_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(depth: int) -> dict[str, object]:
        count = 2 * depth + 1
        left = [n + 1 if n % 2 == 0 and n < count - 1 else n for n in range(count)]
        right = [n + 2 if n % 2 == 0 and n < count - 1 else n for n in range(count)]
        zeros = [0] * count
        return {"roots": [0], "feature": zeros, "threshold": zeros, "left": left, "right": right, "value": zeros}

    assert Forest.from_json(chain(forests.MOST_DEPTH)).predict(np.zeros((1, 1))).tolist() == [0.0]
    with pytest.raises(SchemaError, match="33 nodes deep; 32"):
        Forest.from_json(chain(forests.MOST_DEPTH + 1))
    monkeypatch.setattr(forests, "MOST_NODES", 4)
    with pytest.raises(SchemaError, match="2 trees of 6 nodes"):
        Forest.from_json(FOREST)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_of_what_can_be_read_are_finite(sign: float) -> None:
    count = forests.MOST_TREES
    places, zeros = list(range(count)), [0] * count
    leaves = {"roots": places, "feature": zeros, "threshold": zeros, "left": places, "right": places}
    forest = Forest.from_json({**leaves, "value": [sign * 1e300] * count})
    assert np.isfinite(forest.predict(np.zeros((2, 1)))).all()
