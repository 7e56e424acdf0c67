"""``[f(x) for x in values if test(x)]``: a tuple, unrolled while the kernel is compiled."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ..language.extent import gathered
from ..language.tensor import tensor
from ..printable import shown
from .assignment import assign
from .dispatch import evaluate, expression
from .frame import Frame
from .python_builtins import known_items

#: Stands for a name that the scope did not have.
_ABSENT = object()


@expression(ast.ListComp)
def _list(frame: Frame, node: ast.ListComp) -> object:
    names = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    outer = {name: frame.scope.names.get(name, _ABSENT) for name in names}
    with frame.at(node):
        items = gathered(_elements(frame, node, 0))
    for name, value in outer.items():  # the variables of a comprehension are its own
        if value is _ABSENT:
            frame.scope.names.pop(name, None)
        else:
            frame.scope.names[name] = value
    return items


def _elements(frame: Frame, node: ast.ListComp, depth: int) -> Iterator[object]:
    """The elements of what is left of the generators, from ``depth`` on."""
    if depth == len(node.generators):
        yield evaluate(frame, node.elt)
        return
    generator = node.generators[depth]
    for value in _values(frame, generator.iter):
        frame.budget.spend(frame, node)
        assign(frame, generator.target, value)
        if all(_holds(frame, test) for test in generator.ifs):
            yield from _elements(frame, node, depth + 1)


def _values(frame: Frame, node: ast.expr) -> Iterable[object]:
    values = evaluate(frame, node)
    items = known_items(values)
    if items is not None:
        return items
    raise frame.error(
        node,
        f"a list comprehension over {shown(values)} has no elements that are known while compiling",
        "it takes a tuple, tl.static_range, or a range whose bounds are known while compiling",
    )


def _holds(frame: Frame, node: ast.expr) -> bool:
    value = evaluate(frame, node)
    if isinstance(value, tensor):
        raise frame.error(node, "which elements a list has must be known while compiling", "use tl.where, or an 'if'")
    return bool(value)
