from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.tuner.errors import ExpressionError
from deuteron.tuner.expression import MAX_DEPTH, Expression


def value(text: str, **names: int | float | str | bool) -> object:
    return Expression.parse(text).evaluate(names)


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("2 * M * N + 1", {"M": 3, "N": 5}, 31),
        ("M % BLOCK == 0 and BLOCK <= 128", {"M": 256, "BLOCK": 64}, True),
        ("M % BLOCK == 0 and BLOCK <= 128", {"M": 250, "BLOCK": 64}, False),
        ("cdiv(n, 128)", {"n": 129}, 2),
        ("next_power_of_2(n)", {"n": 1000}, 1024),
        ("next_power_of_2(n)", {"n": 1}, 1),
        ("min(a, b, 3) + max(a, b)", {"a": 7, "b": 5}, 10),
        ("abs(-x) // 2", {"x": 9}, 4),
        ("1 << 10 | 3 & 2 ^ 1", {}, 1 << 10 | 3 & 2 ^ 1),
        ("x in (1, 2, 4)", {"x": 2}, True),
        ("x not in [1, 2]", {"x": 2}, False),
        ("mode == 'fast'", {"mode": "fast"}, True),
        ("0 < x < 10", {"x": 10}, False),
        ("a if flag else b", {"a": 1, "b": 2, "flag": False}, 2),
        ("not flag or n ** 2 == 9", {"flag": True, "n": 3}, True),
        ("M ** 3 + 2 ** 400 // 2 ** 399", {"M": 1 << 20}, (1 << 60) + 2),
        ("7 / 2", {}, 3.5),
        ("~5", {}, -6),
        ("(N or 1) * 4", {"N": 5}, 20),
        ("(N or 1) * 4", {"N": 0}, 4),
        ("N and 8", {"N": 5}, 8),
        ("N and 8 // N", {"N": 0}, 0),
        ("a or b and c or d", {"a": 0, "b": 2, "c": 0.0, "d": "x"}, "x"),
    ],
)
def test_values(text: str, names: dict[str, int], expected: object) -> None:
    assert value(text, **names) == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "x.__class__",
        "x[0]",
        "(lambda: 1)()",
        "[i for i in (1, 2)]",
        "f'{x}'",
        "open('a')",
        "min(*a)",
        "min(1, 2, key=3)",
        "x := 3",
        "None",
        "b'a'",
        "1j",
        "...",
        "",
        "a\nb",
        "min(1)",
        "cdiv(1, 2, 3)",
        "x in y",
        "x is y",
        "((((",
        "-" * 1500 + "1",
        "(" * 500 + ")" * 500,
        "1+" * 450 + "1",
        "9" * 1500,
    ],
)
def test_refused_when_parsed(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse(text)


@pytest.mark.parametrize(
    "around",
    ["-{}", "not ({})", "({}) + 1", "1 + ({})", "({}) < 2", "1 < ({})", "1 in (0, {})", "({}) in (1,)"]
    + ["min({}, 1)", "cdiv(1, {})", "1 and ({})", "({}) if 1 else 2", "2 if ({}) else 1", "2 if 1 else ({})"],
)
def test_depth_counts_in_all_that_nests(around: str) -> None:
    def nested(depth: int) -> str:
        return around.replace("{}", nested(depth - 1)) if depth else "1"

    Expression.parse(nested(15))
    with pytest.raises(ExpressionError, match="the expression is too large"):
        Expression.parse(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("2 ** 2000", {}, "1024 bits"),
        ("9 ** 9 ** 9", {}, "1024 bits"),
        ("1 << 5000", {}, "1024 bits"),
        ("(2 ** 500) * (2 ** 500) * (2 ** 500)", {}, "1024 bits"),
        ("x * 10", {"x": "text"}, "arithmetic on the text"),
        ("'%1000000d' % 5", {}, "arithmetic on the text"),
        ("1 % 0", {}, "division by zero"),
        ("1.5 | 2", {}, "unsupported operand"),
        ("(-8) ** 0.5", {}, "root of a negative"),
        ("1e308 * 10", {}, "not finite"),
        ("x < 1", {"x": "a"}, "cannot order"),
        ("next_power_of_2(1.5)", {}, "whole number"),
        ("1 << (0 - 1)", {}, "negative shift"),
    ],
)
def test_refused_when_evaluated(text: str, names: dict[str, int], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        value(text, **names)


def test_error_shows_caret_and_remedy() -> None:
    with pytest.raises(ExpressionError) as caught:
        value("BLOCK_M * BLCK_N <= 4", BLOCK_M=1, BLOCK_N=2)
    lines = str(caught.value).splitlines()
    assert lines[0] == "unknown name 'BLCK_N'"
    assert lines[1].index("BLCK_N") == lines[2].index("^")
    assert "did you mean 'BLOCK_N'" in lines[3]


def test_syntax_error_points_into_the_text() -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.parse("M % == 0")
    text, caret = str(caught.value).splitlines()[1:3]
    assert text[caret.index("^")] == "="


def test_names_and_conjuncts() -> None:
    expression = Expression.parse("(a or b) and c < 2 and (d == 1 and e)")
    assert expression.names == {"a", "b", "c", "d", "e"}
    assert [part.text for part in expression.conjuncts()] == ["a or b", "c < 2", "d == 1", "e"]


def test_whole_numbers() -> None:
    assert Expression.parse("8 / 2").evaluate_int({}) == 4
    with pytest.raises(ExpressionError, match="not a whole number"):
        Expression.parse("7 / 2").evaluate_int({})


numbers = st.integers(-50, 50)


def arithmetic() -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["a", "b", "c"]) | numbers.map(lambda n: f"({n})")
    return st.recursive(
        leaf,
        lambda inner: st.builds(
            lambda left, op, right: f"({left} {op} {right})",
            inner,
            st.sampled_from(["+", "-", "*", "//", "%", "<", "==", "and", "or"]),
            inner,
        ),
        max_leaves=12,
    )


@settings(derandomize=True, deadline=None)
@given(arithmetic(), numbers, numbers, numbers)
def test_agrees_with_python(text: str, a: int, b: int, c: int) -> None:
    names = {"a": a, "b": b, "c": c}
    try:
        expected = eval(text, {"__builtins__": {}}, names)
    except ZeroDivisionError:
        with pytest.raises(ExpressionError, match="division by zero"):
            value(text, **names)
        return
    found = value(text, **names)
    assert isinstance(found, bool) == isinstance(expected, bool)
    assert math.isclose(float(found), float(expected))  # type: ignore[arg-type]


def test_expressions_in_place_of_names() -> None:
    values = {"a": "b + 1", "b": "c if c > 2 else -2", "max": "7"}
    made = Expression.parse("max(a * 2, b ** 2) - c").replacing(values)
    assert made.names == {"b", "c"}  # of values only the names that were there are replaced
    assert made.evaluate({"b": 3, "c": 1}) == max((3 + 1) * 2, (-2) ** 2) - 1
    text = "x  +  (c)"
    assert Expression.parse(text).replacing(values).text == text
    assert Expression.parse("max(max, 3)").replacing(values).text == "max(7, 3)"
    with pytest.raises(ExpressionError, match="not an expression"):
        Expression.parse("a").replacing({"a": "b +"})
    with pytest.raises(ExpressionError, match="the limit is 2000"):
        Expression.parse("a" + " * a" * 30).replacing({"a": "1" + " + 1" * 20})


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.text(max_size=60))
def test_any_text_gives_a_value_or_an_expression_error(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        Expression.parse(text).evaluate({"x": 1})
