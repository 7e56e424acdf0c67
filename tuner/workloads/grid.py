"""What a kernel's text says of its grid: how many elements one program of each axis stands for."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deuteron.compiler.source.kernel import KernelSource


def suggested_grid(source: KernelSource, dims: Sequence[str]) -> tuple[str, ...]:
    """A grid to suggest for a kernel over ``dims``: where ``program_id(axis)`` is multiplied by a constexpr, as in
    ``program_id(0) * BLOCK``, as many programs as blocks; else one for each of a dim. Which dim it is cannot be known:
    the one by whose name the constexpr ends, else the axis-th. One axis where the text uses none as it is."""
    axes = _axes(source.node)
    steps = _steps(source.node, axes, {a.name for a in source.arguments if a.constexpr})
    last = max((axis for _, axis in axes), default=0)
    return tuple(_programs(axis, steps.get(axis), dims) for axis in range(last + 1))


def _programs(axis: int, step: str | None, dims: Sequence[str]) -> str:
    dim = dims[min(axis, len(dims) - 1)]
    if step is None:
        return dim
    dim = next((name for name in dims if step.upper().endswith(f"_{name.upper()}")), dim)
    return f"cdiv({dim}, {step})"


def _axes(function: ast.FunctionDef) -> set[tuple[str, int]]:
    """Texts that are the number of a program, with its axis: the call, and names bound to it alone."""
    found = {(ast.unparse(node), axis) for node in ast.walk(function) if (axis := _axis(node)) is not None}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and (axis := _axis(node.value)) is not None:
            found |= {(target.id, axis) for target in node.targets if isinstance(target, ast.Name)}
    return found


def _axis(node: ast.AST) -> int | None:
    """Of a call of ``program_id`` with a constant."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "program_id":
        return None
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "axis")]
    value = given[0].value if given and isinstance(given[0], ast.Constant) else None
    return value if isinstance(value, int) and 0 <= value < 3 else None


def _steps(function: ast.FunctionDef, axes: set[tuple[str, int]], constexprs: set[str]) -> dict[int, str]:
    """The constexpr by which each axis is multiplied."""
    numbers, steps = dict(axes), {}
    for node in ast.walk(function):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        for one, other in ((node.left, node.right), (node.right, node.left)):
            axis, name = numbers.get(ast.unparse(one)), ast.unparse(other)
            if axis is not None and name in constexprs:
                steps[axis] = name
    return steps
