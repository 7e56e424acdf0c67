"""Which of a function's variables its text may read before it gives them a value."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence


def read_before_bound(body: Sequence[ast.stmt], parameters: Iterable[str] = ()) -> set[str]:
    """Names that some path through the statements reads before it assigns them. There, as in Triton and unlike in
    Python, they are what they are outside the function: in each iteration of a loop that assigns them afterwards, too.

    Which branches and loops are taken is known when the kernel is compiled: a name may be among these that never is
    read so.
    """
    flow = _Flow()
    flow.statements(body, set(parameters))
    return flow.early


class _Flow:
    """Walks through a function in the order in which it is evaluated. ``bound`` are the names that have a value on
    every path to a place; what walks over a part adds to it what that part certainly assigns."""

    def __init__(self) -> None:
        self.early: set[str] = set()

    def statements(self, nodes: Sequence[ast.stmt], bound: set[str]) -> set[str]:
        for node in nodes:
            self.statement(node, bound)
        return bound

    def statement(self, node: ast.stmt, bound: set[str]) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self.parts([value, *targets], bound)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.parts([value, target], bound)
            case ast.AnnAssign():
                pass  # a declaration
            case ast.AugAssign(target=target, value=value):
                if isinstance(target, ast.Name):
                    self.expression(ast.Name(target.id, ast.Load()), bound)
                self.parts([value, target], bound)
            case ast.If(test=test, body=body, orelse=orelse):
                self.expression(test, bound)
                sides = [self.statements(side, set(bound)) for side in (body, orelse)]
                bound |= sides[0] & sides[1]
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                self.expression(iterable, bound)
                inside = set(bound)
                self.expression(target, inside)
                self.statements([*body, *orelse], inside)
            case ast.While(test=test, body=body, orelse=orelse):
                self.expression(test, bound)
                self.statements([*body, *orelse], set(bound))
            case _:
                self.parts(ast.iter_child_nodes(node), bound)

    def parts(self, nodes: Iterable[ast.AST], bound: set[str]) -> None:
        for node in nodes:
            if isinstance(node, ast.stmt):
                self.statement(node, bound)
            else:
                self.expression(node, bound)

    def expression(self, node: ast.AST, bound: set[str]) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                self.early |= {name} - bound
            case ast.Name(id=name):
                bound.add(name)
            case ast.NamedExpr(target=target, value=value):
                self.parts([value, target], bound)
            case ast.BoolOp(values=[first, *others]):
                self.expression(first, bound)
                self.parts(others, set(bound))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.expression(test, bound)
                for side in (body, orelse):
                    self.expression(side, set(bound))
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                self.comprehension(node, bound)
            case ast.Lambda(args=arguments, body=body):
                self.expression(body, bound | {a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)})
            case _:
                self.parts(ast.iter_child_nodes(node), bound)

    def comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp, bound: set[str]
    ) -> None:
        inside = set(bound)  # its variables are its own
        for generator in node.generators:
            self.parts([generator.iter, generator.target], inside)
            self.parts(generator.ifs, set(inside))
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self.parts(elements, inside)
