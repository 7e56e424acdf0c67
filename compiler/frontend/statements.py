"""Statements of a kernel."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..ir.types import Scalar
from ..language import arithmetic, debugging
from ..language.tensor import tensor
from .branches import runtime_if
from .expressions import apply_binary, evaluate
from .loops import execute_for, execute_while

if TYPE_CHECKING:
    from .frame import Frame


@dataclass(frozen=True, slots=True)
class Returned:
    """The function has returned on every path; ``value`` is what it returned."""

    value: object


StatementT = TypeVar("StatementT", bound=ast.stmt)
_RULES: dict[type[ast.stmt], Callable[[Frame, ast.stmt], Returned | None]] = {}


def _rule(kind: type[StatementT]) -> Callable[[Callable[[Frame, StatementT], object]], object]:
    def register(function: Callable[[Frame, StatementT], object]) -> object:
        _RULES[kind] = function  # type: ignore[assignment]
        return function

    return register


def execute(frame: Frame, body: list[ast.stmt]) -> Returned | None:
    """Compile statements in order; the result tells whether the function returned."""
    for position, statement in enumerate(body):
        frame.budget.spend(frame, statement)
        if isinstance(statement, ast.If):
            outcome, finished = _if(frame, statement, body[position + 1 :])
            if finished:
                return outcome
            continue
        rule = _RULES.get(type(statement))
        if rule is None:
            raise frame.error(
                statement,
                f"{_describe(statement)} is not part of the kernel language",
                _remedy(statement),
            )
        outcome = rule(frame, statement)
        if outcome is not None:
            return outcome
    return None


def _describe(statement: ast.stmt) -> str:
    words: dict[type[ast.stmt], str] = {
        ast.Import: "an import",
        ast.ImportFrom: "an import",
        ast.FunctionDef: "a nested function",
        ast.ClassDef: "a class",
        ast.With: "'with'",
        ast.Try: "'try'",
        ast.Raise: "'raise'",
        ast.Break: "'break'",
        ast.Continue: "'continue'",
        ast.Delete: "'del'",
        ast.Global: "'global'",
        ast.Nonlocal: "'nonlocal'",
        ast.Match: "'match'",
    }
    return words.get(type(statement), type(statement).__name__)


def _remedy(statement: ast.stmt) -> str:
    match statement:
        case ast.Break():
            return "use a while loop with the condition to go on"
        case ast.Continue():
            return "put the rest of the loop's body under an 'if'"
        case ast.FunctionDef():
            return "define it outside the kernel, decorated with @jit"
        case ast.Import() | ast.ImportFrom():
            return "import outside the kernel"
        case _:
            return "under TRITON_INTERPRET=1 kernels run as Python and may use it"


def _if(frame: Frame, node: ast.If, rest: list[ast.stmt]) -> tuple[Returned | None, bool]:
    """Compile an if statement; the flag tells that ``rest`` is compiled too (or unreachable)."""
    condition = evaluate(frame, node.test)
    if not isinstance(condition, tensor):
        outcome = execute(frame, node.body if condition else node.orelse)
        return outcome, outcome is not None
    then, otherwise = node.body, node.orelse
    if _contains_return(node):
        # An early return: what follows the statement belongs to the paths that go on.
        then, otherwise = [*then, *rest], [*otherwise, *rest]
        if not _always_returns(then) and not _always_returns(otherwise):
            end = ast.copy_location(ast.Return(value=None), node)
            then, otherwise = [*then, end], [*otherwise, end]
        with frame.at(node):
            returned, value = runtime_if(frame, node, condition, then, otherwise)
        return Returned(value), returned
    with frame.at(node):
        runtime_if(frame, node, condition, then, otherwise)
    return None, False


def _contains_return(node: ast.stmt) -> bool:
    return any(isinstance(n, ast.Return) for n in ast.walk(node))


def _always_returns(body: list[ast.stmt]) -> bool:
    for statement in body:
        if isinstance(statement, ast.Return):
            return True
        if isinstance(statement, ast.If) and all(
            _always_returns(branch) for branch in (statement.body, statement.orelse)
        ):
            return True
    return False


@_rule(ast.Return)
def _return(frame: Frame, node: ast.Return) -> Returned:
    return Returned(evaluate(frame, node.value) if node.value else None)


@_rule(ast.Pass)
def _pass(frame: Frame, node: ast.Pass) -> None:
    return None


@_rule(ast.Expr)
def _expression(frame: Frame, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):  # a docstring
        evaluate(frame, node.value)


@_rule(ast.For)
def _for(frame: Frame, node: ast.For) -> Returned | None:
    return execute_for(frame, node)


@_rule(ast.While)
def _while(frame: Frame, node: ast.While) -> None:
    execute_while(frame, node)


@_rule(ast.Assign)
def _assign(frame: Frame, node: ast.Assign) -> None:
    value = evaluate(frame, node.value)
    for target in node.targets:
        assign(frame, target, value)


def assign(frame: Frame, target: ast.expr, value: object) -> None:
    """Bind ``value`` to a name or to a tuple of targets."""
    match target:
        case ast.Name(id=name):
            frame.scope[name] = value
            if isinstance(value, tensor) and not value.value.name:
                value.value.name = name
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            if not isinstance(value, tuple) or len(value) != len(targets):
                shown = f"{len(value)} values" if isinstance(value, tuple) else repr(value)
                raise frame.error(target, f"cannot unpack {shown} into {len(targets)} names")
            for part, item in zip(targets, value, strict=True):
                assign(frame, part, item)
        case _:
            raise frame.error(
                target,
                "only names can be assigned",
                "write to memory with tl.store(pointer, value)",
            )


@_rule(ast.AnnAssign)
def _annotated(frame: Frame, node: ast.AnnAssign) -> None:
    if node.value is None:
        raise frame.error(node, "a declaration needs a value")
    value, annotation = evaluate(frame, node.value), evaluate(frame, node.annotation)
    if isinstance(annotation, Scalar) and isinstance(value, tensor | bool | int | float):
        with frame.at(node):
            value = arithmetic.cast_to(arithmetic.as_tensor(value), annotation)
    assign(frame, node.target, value)


@_rule(ast.AugAssign)
def _augmented(frame: Frame, node: ast.AugAssign) -> None:
    if not isinstance(node.target, ast.Name):
        raise frame.error(node.target, "only names can be assigned")
    current = frame.lookup(node.target)
    value = evaluate(frame, node.value)
    with frame.at(node):
        result = apply_binary(frame, node, node.op, current, value)
    assign(frame, node.target, result)


@_rule(ast.Assert)
def _assert(frame: Frame, node: ast.Assert) -> None:
    condition = evaluate(frame, node.test)
    message = str(evaluate(frame, node.msg)) if node.msg else ""
    with frame.at(node):
        if isinstance(condition, tensor):
            debugging.device_assert(condition, message)
        else:
            debugging.static_assert(condition, message)
