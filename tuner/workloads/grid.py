"""What a kernel's text says of its grid: how many elements one program of each axis stands for."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deuteron.compiler.source.kernel import KernelSource


def suggested_grid(source: KernelSource, dims: Sequence[str]) -> tuple[str, ...]:
    """A grid to suggest for a kernel over ``dims``. Where ``program_id(axis)`` is multiplied by a constexpr, as in
    ``program_id(0) * BLOCK``, as many programs as blocks; where it is divided, as the number of a tile of a matrix is,
    as many as there are combinations of the blocks that other numbers are multiplied by; else one for each of a dim.

    Which dim it is cannot be known: the one by whose name the constexpr ends, else the first one that is left. One axis
    where the text uses none as it is."""
    axes = _axes(source.node)
    numbers = dict(axes)
    steps = _factors(source.node, {a.name for a in source.arguments if a.constexpr})
    parts: dict[int, list[str]] = {}
    for other, step in steps:
        if other in numbers:
            parts[numbers[other]] = [step]
    for axis in _divided(source.node, numbers) - parts.keys():
        parts[axis] = [step for other, step in steps if other not in numbers and _named(step, dims) is not None]
    left = [dim for dim in dims if not any(_named(step, dims) == dim for found in parts.values() for step in found)]
    grid = []
    for axis in range(max(numbers.values(), default=0) + 1):
        unnamed = not parts.get(axis) or any(_named(step, dims) is None for step in parts[axis])
        dim = (left.pop(0) if left else dims[-1]) if unnamed else ""
        blocks = [f"cdiv({_named(step, dims) or dim}, {step})" for step in parts.get(axis, ())]
        grid.append(" * ".join(blocks) or dim)
    return tuple(grid)


def _named(step: str, dims: Sequence[str]) -> str | None:
    return next((dim for dim in dims if step.upper().endswith(f"_{dim.upper()}")), None)


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


def _factors(function: ast.FunctionDef, constexprs: set[str]) -> list[tuple[str, str]]:
    """What is multiplied by a constexpr, as text, and the constexpr; each pair once."""
    found: dict[tuple[str, str], None] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if ast.unparse(other) in constexprs:
                    found[ast.unparse(one), ast.unparse(other)] = None
    return list(found)


def _divided(function: ast.FunctionDef, numbers: Mapping[str, int]) -> set[int]:
    """The axes whose number is divided."""
    return {
        numbers[ast.unparse(node.left)]
        for node in ast.walk(function)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.FloorDiv | ast.Mod)
        and ast.unparse(node.left) in numbers
    }
