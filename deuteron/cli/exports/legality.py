"""At which shapes a record's configuration may be used, as Python code for modules that pick one without deuteron.

A record's text never becomes code as it is: the tree that the expression language let through is written out, with the
values of the configuration, the dtype and the device in the place of their names, as a function of the sizes alone.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deuteron.compiler.syntax import expression_tree

from ..errors import CommandError
from .names import python_name

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord
    from deuteron.tuner.codec import Scalar

#: Parameters of ``config_for`` beside the sizes.
_PARAMETERS = ("kernel", "dtype", "device")
#: What constraints call, besides what Python has.
FUNCTIONS = """
def cdiv(a, b):
    return -(-a // b)


def next_power_of_2(n):
    return 1 << max(0, n - 1).bit_length()
"""


def legality_text(record: ConfigRecord) -> str:
    """A function of the record's sizes that says whether its configuration may be used there, as
    :meth:`ConfigRecord.objection` does.

    Raises:
        CommandError: a constraint names something that nothing gives a value, or a size has no name in Python, or that
            of a parameter of ``config_for`` or of a function.
    """
    from deuteron.tuner.expression import FUNCTIONS as CALLED  # lazy: help starts without the tuner
    from deuteron.tuner.records.reach import Reach  # lazy: help starts without the tuner

    reach = record.reach or Reach()
    sizes = ", ".join(python_name(dim, "the size", (*_PARAMETERS, *CALLED)) for dim in record.shape)
    tests = [f"{dim} <= {max(size, reach.sizes.get(dim, size))}" for dim, size in record.shape.items()]
    if not reach.together and len(reach.sizes) > 1:
        tests.append(" + ".join(f"({dim} > {size})" for dim, size in record.shape.items()) + " <= 1")
    values = _Values({**reach.facts, **record.config}, record)
    tests += [ast.unparse(values.visit(expression_tree(text.strip()).body)) for text in reach.constraints]
    return f"lambda {sizes}: {' and '.join(f'({test})' for test in tests)}"


class _Values(ast.NodeTransformer):
    """Puts values in the place of names, and lets those of sizes stand."""

    def __init__(self, values: Mapping[str, Scalar], record: ConfigRecord) -> None:
        self._values, self._record = values, record

    def visit_Call(self, node: ast.Call) -> ast.Call:  # noqa: N802 -- ast calls it so
        return ast.Call(node.func, [self.visit(argument) for argument in node.args], [])

    def visit_Name(self, node: ast.Name) -> ast.expr:  # noqa: N802 -- ast calls it so
        if node.id in self._record.shape:
            return node
        if node.id not in self._values:
            raise CommandError(
                f"a constraint of {self._record.kernel_name} at {self._record.shape_key} names {node.id!r}, which has "
                "no value",
                hint="tune the shape again",
            )
        # A number below 0 in brackets: -1 ** 2 is another thing than (-1) ** 2.
        return expression_tree(f"({self._values[node.id]!r})").body
