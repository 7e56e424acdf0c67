"""Conditionals: what is known while compiling picks a side; otherwise both are compiled and what they change is
merged."""

from __future__ import annotations

import ast

from ..ir.core import Block
from ..language import conditions, shapes
from ..language.tensor import tensor
from ..language.typed import Typed
from .assignment import typed
from .dispatch import evaluate, execute, expression, statement
from .exits import compile_region, split
from .frame import Frame
from .merging import TERNARY, Meeting, emit_conditional


@statement(ast.If)
def _if(frame: Frame, node: ast.If) -> None:
    condition = evaluate(frame, node.test)
    if not isinstance(condition, tensor):
        execute(frame, node.body if condition else node.orelse)
        return
    with frame.at(node):
        condition = scalar_condition(frame, node.test, condition)
    blocks = (Block(), Block())
    then, otherwise = (
        compile_region(frame, block, frame.scope.copy(), lambda body=body: execute(frame, body))  # type: ignore[misc]
        for block, body in zip(blocks, (node.body, node.orelse), strict=True)
    )
    split(frame, node, condition, blocks, (then, otherwise))


@expression(ast.IfExp)
def _conditional_expression(frame: Frame, node: ast.IfExp) -> object:
    """``a if condition else b``: with a run-time condition only one side is evaluated when the kernel runs, and numbers
    are scalars of their types, as in Triton; also where the condition is a scalar that is known."""
    condition = evaluate(frame, node.test)
    if not isinstance(condition, tensor):
        value = evaluate(frame, node.body if condition else node.orelse)
        return typed(value) if isinstance(condition, Typed) else value
    for named in (inner for side in (node.body, node.orelse) for inner in ast.walk(side)):
        if isinstance(named, ast.NamedExpr):
            raise frame.error(
                named, "':=' in one side of a conditional expression may not be reached", "assign in an 'if' statement"
            )
    with frame.at(node):
        condition = scalar_condition(frame, node.test, condition)
        blocks, values = (Block(), Block()), []
        for block, side in zip(blocks, (node.body, node.orelse), strict=True):
            with frame.builder.into(block):
                values.append(typed(evaluate(frame, side)))
        meeting = Meeting()
        joined = meeting.join(TERNARY, *values)
        return meeting.rebuild(joined, emit_conditional(frame, condition, blocks, meeting))


def scalar_condition(frame: Frame, node: ast.expr, value: object) -> tensor:
    """``value`` as a scalar i1 for if and while; a tile of one element is what that element is.

    Raises:
        UnsupportedSyntax: it is a tile; at ``node``.
    """
    if not isinstance(value, tensor):
        return conditions.as_condition(bool(value))
    if value.numel > 1:
        raise frame.error(
            node,
            f"a condition must be one value, got {value.type}",
            "use tl.where for elementwise choices, or reduce the condition with tl.max",
        )
    return conditions.as_condition(shapes.unsplat(value) if value.shape else value)
