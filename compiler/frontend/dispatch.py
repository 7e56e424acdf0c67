"""Which rule compiles which kind of statement or expression, and how a list of statements is compiled.

The rules register themselves here (statements, branches, loops, expressions), so that each of them may compile any
other without importing it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeVar

from .exits import goes_on
from .frame import Frame

StatementT = TypeVar("StatementT", bound=ast.stmt)
ExpressionT = TypeVar("ExpressionT", bound=ast.expr)

_STATEMENTS: dict[type[ast.stmt], Callable[[Frame, ast.stmt], None]] = {}
_EXPRESSIONS: dict[type[ast.expr], Callable[[Frame, ast.expr], object]] = {}


def statement(
    kind: type[StatementT],
) -> Callable[[Callable[[Frame, StatementT], None]], Callable[[Frame, StatementT], None]]:
    """Register the decorated function as the rule of a kind of statement."""

    def register(function: Callable[[Frame, StatementT], None]) -> Callable[[Frame, StatementT], None]:
        _STATEMENTS[kind] = function  # type: ignore[assignment]
        return function

    return register


def expression(
    kind: type[ExpressionT],
) -> Callable[[Callable[[Frame, ExpressionT], object]], Callable[[Frame, ExpressionT], object]]:
    """Register the decorated function as the rule of a kind of expression."""

    def register(function: Callable[[Frame, ExpressionT], object]) -> Callable[[Frame, ExpressionT], object]:
        _EXPRESSIONS[kind] = function  # type: ignore[assignment]
        return function

    return register


def execute(frame: Frame, body: list[ast.stmt]) -> None:
    """Compile statements in order, each under the condition that nobody has left (see :mod:`.exits`).

    Raises:
        UnsupportedSyntax: a statement is not part of the language, with its place and what to write instead.
    """
    for node in body:
        if not goes_on(frame, node):
            return
        frame.budget.spend(frame, node)
        rule = _STATEMENTS.get(type(node))
        if rule is None:
            described = _STATEMENT_WORDS.get(type(node), type(node).__name__)
            raise frame.error(node, f"{described} is not part of the kernel language", _remedy(node))
        rule(frame, node)


def evaluate(frame: Frame, node: ast.expr) -> object:
    """The value of an expression: a tensor, a compile-time Python value, or a function or module of the language.

    Raises:
        UnsupportedSyntax: the expression is not part of the language.
    """
    rule = _EXPRESSIONS.get(type(node))
    if rule is None:
        described = _EXPRESSION_WORDS.get(type(node), type(node).__name__)
        raise frame.error(
            node,
            f"{described} is not part of the kernel language",
            "rewrite it with tl functions, or run the kernel with TRITON_INTERPRET=1",
        )
    return rule(frame, node)


_STATEMENT_WORDS: dict[type[ast.stmt], str] = {
    ast.Import: "an import",
    ast.ImportFrom: "an import",
    ast.FunctionDef: "a nested function",
    ast.ClassDef: "a class",
    ast.Try: "'try'",
    ast.Raise: "'raise'",
    ast.Delete: "'del'",
    ast.Global: "'global'",
    ast.Nonlocal: "'nonlocal'",
    ast.Match: "'match'",
}

_EXPRESSION_WORDS: dict[type[ast.expr], str] = {
    ast.Lambda: "a lambda",
    ast.GeneratorExp: "a generator expression",
    ast.DictComp: "a dict comprehension",
    ast.Set: "a set",
    ast.Await: "await",
    ast.Yield: "yield",
}


def _remedy(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef():
            return "define it outside the kernel, decorated with @jit"
        case ast.Import() | ast.ImportFrom():
            return "import outside the kernel"
        case _:
            return "under TRITON_INTERPRET=1 kernels run as Python and may use it"
