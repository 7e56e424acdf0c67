"""``and``, ``or`` and ``not`` of tiles in kernels that run as Python.

Compiled kernels have them elementwise. Python would ask a tile for one truth value, so functions that have such
operators are compiled anew from their text: ``x and y`` calls :func:`_joined`, which looks at what ``x`` is. Everything
else, names, lines and closures among it, stays as it was.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TypeGuard, cast

from ...language.arithmetic import logical_and, logical_not, logical_or
from ...language.tensor import tensor

#: Names with a dot are nobody else's in a kernel. The last one is of what stands for an operand that is not evaluated.
_JOINED, _SETTLED, _NEGATED, _UNREAD = "joined.tiles", "joined.settled", "joined.negated", "joined.unread"


def _is_tile(value: object) -> TypeGuard[tensor]:
    return isinstance(value, tensor) and value.numel != 1


def _settled(value: object, by: bool) -> bool:
    """Whether the first operand is the result; ``by``: the truth value that ends the operator, True for ``or``."""
    return not _is_tile(value) and bool(value) is by


def _joined(first: object, second: object, by: bool) -> object:
    if second is _UNREAD:
        return first
    if _is_tile(first):
        return (logical_or if by else logical_and)(first, second)  # type: ignore[arg-type]
    return second


def _negated(value: object) -> object:
    return logical_not(value) if _is_tile(value) else not value


#: What the code of :func:`elementwise` needs among its globals.
HELPERS: dict[str, object] = {_JOINED: _joined, _SETTLED: _settled, _NEGATED: _negated, _UNREAD: _UNREAD}


class _Rewriting(ast.NodeTransformer):
    """``x and y`` becomes ``joined(held := x, unread if settled(held, False) else y, False)``."""

    def __init__(self) -> None:
        self.held = 0

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        by = ast.Constant(isinstance(node.op, ast.Or))
        operands: list[ast.expr] = [self.visit(value) for value in node.values]
        first, *others = operands
        for other in others:
            self.held += 1
            name = f"joined.{self.held}"
            held = ast.NamedExpr(ast.Name(name, ast.Store()), first)
            settled = _call(_SETTLED, ast.Name(name, ast.Load()), by)
            first = _call(_JOINED, held, ast.IfExp(settled, ast.Name(_UNREAD, ast.Load()), other), by)
        return ast.copy_location(first, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        self.held += 1
        return ast.copy_location(_call(_NEGATED, node.operand), node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.ListComp:
        return node  # in whose iterables nothing can be assigned

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.GeneratorExp:
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def elementwise(function: FunctionType) -> CodeType:
    """The code of a function with its logical operators made elementwise; its own where it has none, or no text."""
    code = function.__code__
    return _elementwise(code, code.co_filename)  # codes are equal whatever file they are of


@lru_cache(maxsize=1024)
def _elementwise(code: CodeType, filename: str) -> CodeType:
    try:
        lines, first = inspect.getsourcelines(code)
        module = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return code
    rewriting = _Rewriting()
    (node,) = module.body
    if not isinstance(node, ast.FunctionDef):
        return code
    ast.increment_lineno(module, first - 1)
    node.decorator_list = []
    node.body = [rewriting.visit(statement) for statement in node.body]
    if not rewriting.held:
        return code
    if code.co_freevars:  # they are free again as what a function around it binds
        module = ast.parse(f"def around({', '.join(code.co_freevars)}): pass")
        cast(ast.FunctionDef, module.body[0]).body = [node]
    made = compile(ast.fix_missing_locations(module), filename, "exec", dont_inherit=True)
    return _inside(_inside(made, "around") if code.co_freevars else made, code.co_name)


def _inside(code: CodeType, name: str) -> CodeType:
    return next(held for held in code.co_consts if isinstance(held, CodeType) and held.co_name == name)
