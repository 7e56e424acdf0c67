"""Python functions made from a launch recipe: checks of its guards, values of its expressions.

Recipes come from the compiler or from the disk cache, which is data. Of a recipe's text nothing gets into a function's
text: names become places in the tuple of values, operators those of a table, and the rest are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import LaunchError
from ...launch_recipe import Guard, HostExpression

Values = tuple[Any, ...]

_OPERATORS = {"+": "({} + {})", "*": "({} * {})", "//": "({} // {})", "max": "max({}, {})"}


#: The text of each value by its name: a place in the tuple of values, or a variable.
Places = Mapping[str, str]


def predicate(guards: Sequence[Guard], names: Sequence[str]) -> Callable[[Values], bool]:
    """Whether all ``guards`` hold for a launch's values, whose names are ``names`` in their order."""
    return _function(condition(guards, _in_order(names)))


def condition(guards: Sequence[Guard], places: Places) -> str:
    """The text of whether all ``guards`` hold.

    Several multiples of one power of two are one check of the bits of all, several signs one of the sign of all: a
    check takes about 0.1 us, whatever the number of guards.
    """
    groups: dict[tuple[str, int], list[str]] = {}
    for guard in guards:
        groups.setdefault((guard.kind, _integer(guard.value)), []).append(_place(guard.parameter, places))
    checks = [check for (kind, value), found in groups.items() for check in _checks(kind, value, found)]
    return " and ".join(checks) or "True"


def _checks(kind: str, value: int, places: list[str]) -> list[str]:
    union = f"({' | '.join(places)})"
    if kind == "least":
        return [f"{union} >= 0"] if value == 0 else [f"{place} >= {value}" for place in places]
    if kind == "multiple" and value > 0:
        power_of_two = value & (value - 1) == 0
        return [f"not {union} & {value - 1}"] if power_of_two else [f"not {place} % {value}" for place in places]
    raise LaunchError(f"the launch recipe has a guard of the kind {kind!r} with the value {value}")


def evaluator(expressions: Sequence[HostExpression], names: Sequence[str]) -> Callable[[Values], tuple[int, ...]]:
    """A function from a launch's values to those of ``expressions``."""
    places = _in_order(names)
    return _function(f"({''.join(f'{_expression(e, places)}, ' for e in expressions)})")


def _expression(expression: HostExpression, places: Places) -> str:
    if isinstance(expression, str):
        return _place(expression, places)
    if isinstance(expression, tuple):
        operator, left, right = expression
        if operator not in _OPERATORS:
            raise LaunchError(f"the launch recipe has an unknown operator {operator!r}")
        return _OPERATORS[operator].format(_expression(left, places), _expression(right, places))
    return f"({_integer(expression)})"


def parameters_of(expression: HostExpression) -> set[str]:
    """The parameters that an expression depends on."""
    if isinstance(expression, tuple):
        return parameters_of(expression[1]) | parameters_of(expression[2])
    return {expression} if isinstance(expression, str) else set()


def expression_text(expression: HostExpression) -> str:
    """An expression for people."""
    if isinstance(expression, tuple):
        operator, left, right = expression
        if operator == "max":
            return f"max({expression_text(left)}, {expression_text(right)})"
        return f"({expression_text(left)} {operator} {expression_text(right)})"
    return str(expression)


def _in_order(names: Sequence[str]) -> Places:
    return {name: f"v[{i}]" for i, name in enumerate(names)}


def _place(name: str, places: Places) -> str:
    if name not in places:
        raise LaunchError(
            f"the launch recipe names {name!r}, which is not passed at run time",
            hint=f"passed are {', '.join(places) or 'no arguments'}",
        )
    return places[name]


def _integer(value: object) -> int:
    if type(value) is not int:
        raise LaunchError(f"the launch recipe has {value!r} where an integer belongs")
    return value


def _function(body: str) -> Callable[[Values], Any]:
    scope: dict[str, Any] = {"__builtins__": {}, "max": max}
    made: Callable[[Values], Any] = eval(f"lambda v: {body}", scope)
    return made
