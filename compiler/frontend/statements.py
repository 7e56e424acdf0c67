"""Statements of a kernel."""

from __future__ import annotations

import ast

from ..errors import UnusedResult
from ..language import debugging
from ..language.constexpr import constexpr
from ..language.inline import Inlinable
from ..language.records import enter_scope, exit_scope, scope
from ..language.tensor import tensor
from ..source.returns import alike, reached_after
from .assignment import assign, assign_typed, typed
from .dispatch import evaluate, execute, statement
from .exits import leave_function, leave_iteration, leave_loop
from .expressions import apply_binary, called
from .frame import Frame


@statement(ast.Return)
def _return(frame: Frame, node: ast.Return) -> None:
    leave_function(frame, _returned(frame, node, node.value) if node.value else None)


def _returned(frame: Frame, node: ast.Return, given: ast.expr) -> object:
    value = evaluate(frame, given)
    plain = None if frame.source.compile_time else alike(given, reached_after(frame.source.node.body, node))
    return value if plain is None else typed(value, plain)


@statement(ast.Break)
def _break(frame: Frame, node: ast.Break) -> None:
    _check_in_loop(frame, node, "break")
    leave_loop(frame)


@statement(ast.Continue)
def _continue(frame: Frame, node: ast.Continue) -> None:
    _check_in_loop(frame, node, "continue")
    leave_iteration(frame)


def _check_in_loop(frame: Frame, node: ast.stmt, word: str) -> None:
    if not frame.loops:
        raise frame.error(node, f"'{word}' outside a loop", "use return to leave the function")


@statement(ast.Pass)
def _pass(frame: Frame, node: ast.Pass) -> None:
    return None


@statement(ast.Expr)
def _expression(frame: Frame, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Constant):  # a docstring
        return
    if not isinstance(node.value, ast.Call):
        evaluate(frame, node.value)
        return
    function, _ = called(frame, node.value)
    if isinstance(function, Inlinable) and function.unused is not None:
        name = ast.unparse(node.value.func)
        message = f"The result of {name} is not being used. {function.unused}".rstrip()
        raise frame.source.placed(UnusedResult(message), node)


@statement(ast.Assign)
def _assign(frame: Frame, node: ast.Assign) -> None:
    value = evaluate(frame, node.value)
    for target in node.targets:
        assign_typed(frame, target, value)


@statement(ast.AnnAssign)
def _annotated(frame: Frame, node: ast.AnnAssign) -> None:
    annotation = evaluate(frame, node.annotation)
    if node.value is None:  # y: tl.constexpr; the next value is one
        if annotation is not constexpr:
            raise frame.error(node, "a declaration needs a value")
        if isinstance(node.target, ast.Name):
            frame.announced.add(node.target.id)
        return
    value = evaluate(frame, node.value)
    (assign if annotation is constexpr else assign_typed)(frame, node.target, value)


@statement(ast.AugAssign)
def _augmented(frame: Frame, node: ast.AugAssign) -> None:
    if not isinstance(node.target, ast.Name):
        raise frame.error(node.target, "only names can be assigned")
    current = frame.lookup(node.target)
    value = evaluate(frame, node.value)
    with frame.at(node):
        result = apply_binary(frame, node, node.op, current, value)
    assign_typed(frame, node.target, result)


@statement(ast.With)
def _with(frame: Frame, node: ast.With) -> None:
    scopes = [evaluate(frame, item.context_expr) for item in node.items]
    for item, value in zip(node.items, scopes, strict=True):
        if not isinstance(value, scope) or item.optional_vars is not None:
            raise frame.error(
                node,
                "'with' is part of the kernel language for scopes of a profiler only",
                'with pl.scope("name"): ..., where pl is deuteron.profiler.language',
            )
        with frame.at(item.context_expr):
            enter_scope(value.name)
    execute(frame, node.body)
    for item, value in zip(reversed(node.items), reversed(scopes), strict=True):
        if isinstance(value, scope):
            with frame.at(item.context_expr):
                exit_scope(value.name)


@statement(ast.Assert)
def _assert(frame: Frame, node: ast.Assert) -> None:
    condition = evaluate(frame, node.test)
    message = str(evaluate(frame, node.msg)) if node.msg else ""
    with frame.at(node):
        debugging.device_assert(condition if isinstance(condition, tensor) else bool(condition), message)
