"""Constraints over columns strike out no row of which Python says that they hold."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from deuteron.tuner.errors import ExpressionError
from deuteron.tuner.space import Parameter, Space
from deuteron.tuner.strategies import make_strategy
from deuteron.tuner.strategies.base import Outcome
from deuteron.tuner.strategies.surrogate.columns import RowCondition
from deuteron.tuner.strategies.surrogate.constrained_rows import ConstrainedRows
from deuteron.tuner.strategies.surrogate.domain import BATCH, FilteredDomain, ListedDomain, domain_of
from deuteron.tuner.strategies.surrogate.encoding import Grid, keys

PARAMETERS = (
    Parameter("a", (0, 1, 2, 3, -4, 17)),
    Parameter("b", (1, 2, 64, 1024, 2**50)),
    Parameter("c", (0.5, 2.0, -3.25, 0.0)),
    Parameter("d", (False, True)),
    Parameter("e", (2**60, 2**62, 7)),
    Parameter("s", ("x", "y")),
)


def rows_of(grid: Grid) -> np.ndarray:
    axes = np.indices(tuple(grid.sizes.tolist()), dtype=np.int16)
    return np.ascontiguousarray(axes.reshape(len(grid.sizes), -1).T)


def judged(text: str, step: int = 1) -> tuple[list[bool | None], list[bool]]:
    """What Python says of every row, or of one in so many, None where it cannot, and what columns say."""
    space = Space(PARAMETERS, (text,), {"M": 100, "name": "x"})
    grid = Grid(PARAMETERS)
    rows = rows_of(grid)[::step]
    assert space.conditions is not None
    may_hold = np.ones(len(rows), bool)
    for conjunct in space.conditions:
        may_hold &= RowCondition(conjunct, grid, space.constants).may_hold(rows)
    exact: list[bool | None] = []
    for row in rows:
        try:
            exact.append(space.allows(grid.configuration(row)))
        except ExpressionError:
            exact.append(None)
    return exact, may_hold.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "a * b <= M and a + 3 != b",
        "b % 3 == 1 or a > 2",
        "a // 2 * 2 == a",
        "a % -3 == -1",
        "1 <= a < 3",
        "a in (1, 17) or b not in (1, 64)",
        "b * b * b == 8 or b * b * b * b > 1024 * 1024 * 1024 * 1024 * 1024 * 1024",
        "abs(a) == 4 and min(a, b, 0) < max(c, 0.5)",
        "cdiv(b, 3) == 22 or -a > 3",
        "(b if d else a) == 2",
        "not d and c * 2 >= a",
        "a / b == 0.5",
        "d == 1 or d + a == 4",
    ],
)
def test_columns_say_what_python_says(text: str) -> None:
    exact, may_hold = judged(text)
    assert exact == may_hold
    assert 0 < sum(may_hold) < len(may_hold)


@pytest.mark.parametrize("text", ["e + e > b", "b // a >= 1", "a and b % a == 0", "e * 4 == 2**64", "c // 0.5 == 4.0"])
def test_what_is_not_known_may_hold(text: str) -> None:
    exact, may_hold = judged(text)
    assert all(may for holds, may in zip(exact, may_hold, strict=True) if holds or holds is None)


@pytest.mark.parametrize(
    "text", ["s == 'x'", "s == name or a == 2", "next_power_of_2(b) == 2", "a << 2 == 8", "~a == 1"]
)
def test_what_columns_do_not_know_is_left_to_python(text: str) -> None:
    exact, may_hold = judged(text)
    assert all(may_hold) and not all(exact)


leaves = st.sampled_from(["a", "b", "c", "d", "e", "M", "2", "0", "-3", "1.5", "1024"])
terms = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "/"]), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(st.sampled_from(["min", "max", "cdiv"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        inner.map(lambda t: f"(-{t})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
    ),
    max_leaves=5,
)
compared = st.tuples(terms, st.sampled_from(["<", "<=", "==", "!=", ">"]), terms).map(" ".join)
constraints = st.lists(compared, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from([" and ", " or "]).map(lambda word: word.join(f"({part})" for part in parts))
)


@settings(max_examples=60)
@given(text=constraints)
def test_no_row_is_struck_out_that_python_keeps(text: str) -> None:
    try:
        exact, may_hold = judged(text, 7)
    except ExpressionError:  # one over numbers alone is judged at once
        reject()
    assert all(may for holds, may in zip(exact, may_hold, strict=True) if holds or holds is None)


def power_of_2(name: str, count: int) -> Parameter:
    return Parameter(name, tuple(1 << i for i in range(count)))


def test_sparse_spaces_are_listed_where_they_are_small() -> None:
    """Although the product is too large to be walked through."""
    space = Space(tuple(power_of_2(name, 12) for name in "ABCDE"), ("A*B*C*D*E == 4096",))
    assert space.count() is None
    domain = domain_of(space, 0)
    assert isinstance(domain, ListedDomain)
    found = {key: domain.grid.configuration(row) for key, row in zip(keys(domain._rows), domain._rows, strict=True)}
    assert len(found) == 1820 - 5 and all(map(space.contains, found.values()))


def test_all_rows_are_those_of_the_space() -> None:
    tiles, constraints = (("BM", 8), ("BN", 8), ("T", 6), ("W", 3)), ("BM % T == 0 or T == 1", "BM * BN == 32 * W * T")
    space = Space(tuple(Parameter(name, tuple(range(1, size * 4))) for name, size in tiles), constraints)
    rows = ConstrainedRows(Grid(space.parameters), space).all(1 << 20)
    assert rows is not None
    grid = Grid(space.parameters)
    wanted = {row.tobytes() for config in space.configurations() if (row := grid.levels(config)) is not None}
    assert set(keys(rows)) == wanted and len(rows) == len(wanted)
    assert ConstrainedRows(grid, space).all(len(rows) - 1) is None


def test_a_draw_judges_few_rows_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 * 10^9 points 1 in 1,200 is valid: to draw one took 18 ms."""
    choices = tuple(range(1, 41))
    space = Space(tuple(Parameter(n, choices) for n in "ABCDEF"), ("A+B+C+D+E+F == 100", "A*B <= C*D", "E % F == 0"))
    asked = []
    allows = Space.allows
    monkeypatch.setattr(Space, "allows", lambda self, config: asked.append(config) or allows(self, config))
    domain = domain_of(space, 0)
    assert isinstance(domain, FilteredDomain)
    drawn = domain.draw(500, np.random.default_rng(0))
    assert len(drawn) == 500 and all(space.contains(domain.grid.configuration(row)) for row in drawn)
    assert len(asked) <= 500
    again = domain.draw(500, np.random.default_rng(1))
    assert len({*keys(again)} - {*keys(drawn)}) > 20
    strategy = make_strategy("surrogate", space, 0)
    for _ in range(30):
        config = strategy.ask()
        assert config is not None and space.contains(config)
        strategy.tell(config, Outcome(1000.0 + config["A"] + abs(config["B"] - 20)))


@pytest.mark.parametrize(("text", "most"), [("A < 90", 600), ("s == 'a' or A < 90", 600), ("s == 'a'", 20_000)])
def test_no_more_rows_are_judged_than_are_wanted(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of constraints that NumPy does not know all rows are judged one by one."""
    words = Parameter("s", ("b", "a", *(f"c{i}" for i in range(200))))
    space = Space((words, *(Parameter(n, tuple(range(100))) for n in "ABC")), (text, "s == 'a' or B != C"))
    asked = []
    allows = Space.allows
    monkeypatch.setattr(Space, "allows", lambda self, config: asked.append(config) or allows(self, config))
    domain = FilteredDomain(ConstrainedRows(Grid(space.parameters), space), space, 0)
    assert len(domain.draw(500, np.random.default_rng(0))) >= 50
    assert 50 <= len(asked) <= most


def test_where_hardly_a_draw_is_valid_the_space_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = tuple(Parameter(name, tuple(range(1, 101)), 50) for name in "ABCDEFGH")
    space = Space(parameters, ("A*A*A + B*B*B == C*C*C + D*D*D", "E*F*G == 50*50*H"))
    domain = domain_of(space, 0)
    assert isinstance(domain, FilteredDomain)
    monkeypatch.setattr("deuteron.tuner.strategies.surrogate.domain.TRIED_FIRST", BATCH)
    drawn = domain.draw(50, np.random.default_rng(0))
    assert len({*keys(drawn)}) > 10
    assert all(space.contains(domain.grid.configuration(row)) for row in random.Random(0).sample([*drawn], 20))
    assert domain.unseen({*keys(drawn)}, np.random.default_rng(0)) is not None
