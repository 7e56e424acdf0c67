"""Which ``return`` statements of a function meet in one type.

As in Triton, a number that every ``return`` gives stays one that is known, a literal like any other, and is a scalar
with a type where another one may give something else. The others are those of run-time branches, and what stands behind
a branch that is decided while compiling: that Triton compiles, too, though control never comes there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence


def reached_after(body: Sequence[ast.stmt], node: ast.Return) -> list[ast.expr]:
    """What the ``return`` statements give that stand behind ``node``, under no condition that ``node`` is not under."""
    for place, statement in enumerate(body):
        if statement is node:
            return []
        if not any(inner is node for inner in ast.walk(statement)):
            continue
        inside = [statement.body, statement.orelse] if isinstance(statement, ast.If | ast.For | ast.While) else []
        found = [value for block in inside for value in reached_after(block, node)]
        following = [s.value for s in body[place + 1 :] if isinstance(s, ast.Return) and s.value is not None]
        return found + following[:1]
    return []


def returned(function: ast.FunctionDef) -> list[ast.expr]:
    """What all ``return`` statements of a function give."""
    return [part.value for part in ast.walk(function) if isinstance(part, ast.Return) and part.value is not None]


def alike(value: ast.expr, others: Iterable[ast.expr]) -> tuple[int, ...] | None:
    """The items of a tuple that all others have, too, by their text; None where they are ``value`` altogether."""
    text = ast.unparse(value)
    different = [other for other in others if ast.unparse(other) != text]
    if not different:
        return None
    if not isinstance(value, ast.Tuple):
        return ()
    tuples = [other.elts for other in different if isinstance(other, ast.Tuple)]
    if any(len(items) != len(value.elts) for items in tuples) or len(tuples) < len(different):
        return ()
    return tuple(
        at for at, item in enumerate(value.elts) if all(ast.unparse(items[at]) == ast.unparse(item) for items in tuples)
    )
