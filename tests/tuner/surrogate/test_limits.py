"""Limits found out from what failed, against the rules by which it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from deuteron.tuner.codec import Scalar
from deuteron.tuner.space import Parameter
from deuteron.tuner.strategies.surrogate.encoding import Grid, Levels
from deuteron.tuner.strategies.surrogate.limits import Limits, logarithms

GRID = Grid(
    (
        Parameter("x", (1, 2, 4, 8, 16, 32)),
        Parameter("y", (1, 2, 4, 8, 16, 32)),
        Parameter("tile", (1, 2, 3, 4, 6, 8)),
        Parameter("vector", (1, 2, 4)),
        Parameter("fused", (False, True)),
        Parameter("fixed", (7,)),
        Parameter("order", ("row", "column")),
    )
)


def evaluated(count: int, rule: Callable[[Mapping[str, Scalar]], bool], seed: int) -> tuple[Levels, list[bool]]:
    rows = GRID.random(count, np.random.default_rng(seed))
    return rows, [rule(GRID.configuration(row)) for row in rows]


def number(config: Mapping[str, Scalar], name: str) -> float:
    return float(config[name])


RULES: dict[str, Callable[[Mapping[str, Scalar]], bool]] = {
    "threads": lambda c: number(c, "x") * number(c, "y") <= 64,
    "a warp at least": lambda c: number(c, "x") * number(c, "y") >= 32,
    "whole vectors": lambda c: number(c, "x") >= number(c, "tile") * number(c, "vector"),
    "two at once": lambda c: number(c, "x") * number(c, "y") <= 128 and number(c, "tile") <= number(c, "x"),
    "only fused": lambda c: bool(c["fused"]),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_a_rule_is_found_out(name: str, seed: int) -> None:
    limits = Limits(GRID)
    limits.learn(*evaluated(200, RULES[name], seed))
    rows, works = evaluated(2_000, RULES[name], 100 + seed)
    broken = limits.broken(rows)
    assert broken[~np.array(works)].mean() > 0.9
    assert broken[np.array(works)].mean() < 0.03


def test_what_worked_is_never_beyond_a_limit() -> None:
    rows, works = evaluated(60, lambda c: hash(tuple(c.values())) % 3 > 0, 0)
    limits = Limits(GRID)
    limits.learn(rows, works)
    assert not limits.broken(rows)[np.array(works)].any()


def test_failures_without_a_rule_are_no_limit() -> None:
    """A fifth fails by chance: that something is believed of it is rare."""
    believed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        limits = Limits(GRID)
        limits.learn(GRID.random(60, rng), (rng.random(60) > 0.2).tolist())
        believed += bool(limits.broken(GRID.random(500, rng)).mean() > 0.02)
    assert believed <= 2


def test_nothing_is_believed_without_both_kinds() -> None:
    rows = GRID.random(30, np.random.default_rng(0))
    limits = Limits(GRID)
    assert not limits.broken(rows).any()
    for works in (True, False):
        limits.learn(rows, [works] * 30)
        assert not limits.broken(rows).any()


def test_a_later_success_takes_a_limit_back() -> None:
    rows, works = evaluated(200, RULES["threads"], 0)
    limits = Limits(GRID)
    limits.learn(rows, works)
    beyond = GRID.levels({"x": 32, "y": 32, "tile": 1, "vector": 1, "fused": False, "fixed": 7, "order": "row"})
    assert beyond is not None and limits.broken(beyond[None])[0]
    limits.learn(np.concatenate([rows, beyond[None]]), [*works, True])
    assert not limits.broken(beyond[None])[0]


def test_grids_of_one_configuration_have_no_limits() -> None:
    grid = Grid((Parameter("only", (1,)),))
    limits = Limits(grid)
    rows = np.zeros((3, 1), np.int16)
    limits.learn(rows, [True, False, True])
    assert not limits.broken(rows).any()


def test_logarithms() -> None:
    assert logarithms((1, 2, 8)).tolist() == [0, 1, 3]
    assert logarithms((0, 1, 5)).tolist() == [0, 1, 2]
    assert logarithms((False, True)).tolist() == [0, 1]
    assert logarithms(("row", "column")).tolist() == [0, 1]
