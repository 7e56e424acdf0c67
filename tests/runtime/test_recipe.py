"""Launch recipes: what is kept on disk, and the functions made from them."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.errors import LaunchError
from deuteron.compiler.launch_recipe import Guard, HostExpression, LaunchRecipe, TensorMap
from deuteron.compiler.runtime.launch import host_code
from deuteron.compiler.runtime.launch.guards import Guards
from deuteron.compiler.runtime.launch.host_code import evaluator, expression_text, parameters_of, predicate

NAMES = ("a", "b", "c")
GUARDS = st.one_of(
    st.builds(Guard, st.sampled_from(NAMES), st.just("multiple"), st.integers(1, 40)),
    st.builds(Guard, st.sampled_from(NAMES), st.just("least"), st.integers(-40, 1 << 40)),
    st.builds(Guard, st.sampled_from(NAMES), st.just("least"), st.sampled_from([0, 1])),
)
EXPRESSIONS: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.sampled_from(NAMES), st.integers(-100, 1 << 40)),
    lambda inner: st.tuples(st.sampled_from(["+", "*", "//", "max"]), inner, inner),
    max_leaves=6,
)
VALUES = st.tuples(*[st.integers(-(1 << 63), (1 << 64) - 1)] * 3)

RECIPE = LaunchRecipe(
    384,
    (Guard("n", "multiple", 8), Guard("m", "least", 1), Guard("m", "least", 64)),
    (TensorMap("x", "bf16", ("m", ("max", "n", 1)), (("*", "n", 2), 1), (64, 128), 128, "nan"),),
    persistent=True,
    occupancy=2,
    cluster=4,
    cooperative=True,
    programmatic=True,
)


def evaluate(expression: HostExpression, values: dict[str, int]) -> int:
    """The meaning of an expression."""
    if isinstance(expression, str):
        return values[expression]
    if isinstance(expression, tuple):
        operator, left, right = expression
        x, y = evaluate(left, values), evaluate(right, values)
        return {"+": lambda: x + y, "*": lambda: x * y, "//": lambda: x // y, "max": lambda: max(x, y)}[operator]()
    return expression


@pytest.mark.parametrize("recipe", [RECIPE, LaunchRecipe(128), replace(RECIPE, descriptors=())])
def test_recipes_survive_json(recipe: LaunchRecipe) -> None:
    assert LaunchRecipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


@given(st.lists(GUARDS, max_size=6), VALUES)
def test_predicates_say_what_guards_say(guards: list[Guard], values: tuple[int, ...]) -> None:
    known = dict(zip(NAMES, values, strict=True))
    broken = tuple(g for g in guards if not g.holds(known[g.parameter]))
    made = Guards(guards, NAMES)
    assert bool(made.holds(values)) == (not broken)
    assert made.broken(values) == broken == LaunchRecipe(32, tuple(guards)).broken_by(known)


def test_what_is_not_known_breaks_no_guard() -> None:
    recipe = LaunchRecipe(32, (Guard("a", "multiple", 8), Guard("b", "least", 1)))
    assert recipe.broken_by({"b": 0, "c": 3}) == recipe.guards[1:]
    assert recipe.broken_by({"a": 2.5}) == ()


@given(EXPRESSIONS, VALUES)
def test_expressions(expression: HostExpression, values: tuple[int, ...]) -> None:
    known = dict(zip(NAMES, values, strict=True))
    try:
        expected = evaluate(expression, known)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            evaluator([expression], NAMES)(values)
        return
    assert evaluator([expression, 7], NAMES)(values) == (expected, 7)
    assert parameters_of(expression) == {n for n in NAMES if n in expression_text(expression).replace("max", "")}


ALLOWED = (
    *(ast.Expression, ast.Lambda, ast.arguments, ast.arg, ast.Tuple, ast.Load, ast.Subscript, ast.Constant, ast.Name),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Add, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub),
    *(ast.BitOr, ast.BitAnd, ast.And, ast.Not, ast.Gt, ast.GtE),
)


@given(st.lists(GUARDS, max_size=4), st.lists(EXPRESSIONS, max_size=3))
def test_only_places_and_integers_of_a_recipe_reach_its_functions(guards: list[Guard], expressions: list[Any]) -> None:
    texts: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_code, "_function", texts.append)
        predicate(guards, NAMES)
        evaluator(expressions, NAMES)
    for text in texts:
        for node in ast.walk(ast.parse(f"lambda v: {text}", mode="eval")):
            assert isinstance(node, ALLOWED), ast.dump(node)
            assert not isinstance(node, ast.Name) or node.id in ("v", "max")
            assert not isinstance(node, ast.Constant) or type(node.value) in (int, bool)


HARMFUL = "__import__('os').abort()"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (HARMFUL, "which is not passed at run time"),
        (("+", "a", HARMFUL), "which is not passed at run time"),
        ((HARMFUL, "a", "b"), "unknown operator"),
        (2.5, "where an integer belongs"),
        (None, "where an integer belongs"),
        (("+", True, 1), "where an integer belongs"),
    ],
)
def test_what_is_no_expression_is_refused(expression: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        evaluator([expression], NAMES)


@pytest.mark.parametrize(
    "guard",
    [
        Guard(HARMFUL, "least", 1),
        Guard("a", HARMFUL, 1),  # type: ignore[arg-type]
        Guard("a", "multiple", HARMFUL),  # type: ignore[arg-type]
        Guard("a", "multiple", 0),
    ],
)
def test_what_is_no_guard_is_refused(guard: Guard) -> None:
    with pytest.raises(LaunchError):
        predicate([guard], NAMES)
