"""Which of a function's variables its text reads before it gives them a value."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence


def read_before_bound(body: Sequence[ast.stmt]) -> set[str]:
    """Names that are variables of the function and are read before the first assignment to them in the order of the
    text. There, as in Triton and unlike in Python, they are what they are outside the function. Not in a loop that
    assigns them: its second iteration would read something else than its first."""
    loops = [n for s in body for n in ast.walk(s) if isinstance(n, ast.For | ast.While)]
    return _early(body) - {name for loop in loops for name in _early([loop])}


def _early(nodes: Sequence[ast.AST]) -> set[str]:
    """Names that are assigned, and read before that."""
    early: set[str] = set()
    bound: set[str] = set()
    for name in _in_order(nodes):
        if isinstance(name.ctx, ast.Store):
            bound.add(name.id)
        elif name.id not in bound:
            early.add(name.id)
    return early & bound


def _in_order(nodes: Sequence[ast.AST]) -> Iterator[ast.Name]:
    """Names in the order in which they are evaluated, path by path: values before what they are assigned to."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node
        elif isinstance(node, ast.Assign):
            yield from _in_order([node.value, *node.targets])
        elif isinstance(node, ast.AnnAssign):
            yield from _in_order([part for part in (node.value, node.target) if part is not None])
        elif isinstance(node, ast.AugAssign):
            if isinstance(node.target, ast.Name):
                yield ast.Name(node.target.id, ast.Load())
            yield from _in_order([node.value, node.target])
        elif isinstance(node, ast.NamedExpr):
            yield from _in_order([node.value, node.target])
        elif isinstance(node, ast.For):
            yield from _in_order([node.iter, node.target, *node.body, *node.orelse])
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            continue  # its variables are its own
        else:
            yield from _in_order(list(ast.iter_child_nodes(node)))
