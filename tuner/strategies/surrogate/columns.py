"""Constraints over many rows at once: which may hold, by NumPy, so that few are left to be judged one by one.

Numbers here are 64 bits wide and Python's are not, and an error of one row must not end the others. So every value
carries where it is not known: beyond 53 bits, after a division by zero, and for whatever NumPy may round otherwise.
What is not known may hold.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deuteron.compiler.syntax import expression_tree

from ...codec import Scalar
from ...enumeration import Conjunct
from .encoding import Grid, Levels

Truth: TypeAlias = NDArray[np.bool_]

#: Whole numbers up to this are the same as integers and as floats.
_EXACT = 1 << 53
#: How far a rounded product may be from the product, relative to it, and more than that.
_ROUNDED = 1e-9


class _Column(NamedTuple):
    """A value in each row, an integer or a float; where it is not known, None where it is everywhere; what none is
    larger than, without its sign; and where it is but near, a rounded product of whole numbers."""

    values: NDArray[Any]
    unknown: Truth | None
    most: float
    near: Truth | None = None

    @property
    def exact(self) -> _Column:
        """The same, with what is but near as not known."""
        return self._replace(unknown=_either(self.unknown, self.near), near=None)


class _NoColumnError(Exception):
    """An expression that is left to Python."""


_SUMS: dict[type[ast.AST], Callable[..., NDArray[Any]]] = {ast.Add: np.add, ast.Sub: np.subtract}
_COMPARISONS: dict[type[ast.AST], Callable[..., Truth]] = {
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
_DIVISIONS: dict[type[ast.AST], Callable[..., NDArray[Any]]] = {
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
}


class RowCondition:
    """A constraint over columns of rows. Where it cannot be taken apart, everything may hold."""

    def __init__(self, conjunct: Conjunct, grid: Grid, constants: Mapping[str, Scalar]) -> None:
        self._tree = expression_tree(conjunct.expression.text).body
        self._conjunct, self._constants = conjunct, constants
        names = [parameter.name for parameter in grid.parameters]
        self._places = {name: names.index(name) for name in conjunct.expression.names if name in names}
        self._choices = {name: _numbers(grid.parameters[at].choices) for name, at in self._places.items()}

    @property
    def last(self) -> int:
        """The place of the last parameter that it names; -1 without any."""
        return max(self._places.values(), default=-1)

    def may_hold(self, rows: Levels) -> Truth:
        """Which rows the constraint may be true of."""
        try:
            with np.errstate(all="ignore"):
                found = self._column(self._tree, rows)
        except _NoColumnError:
            return np.ones(len(rows), bool)
        result: Truth = found.values != 0
        unknown = found.exact.unknown
        return result if unknown is None else result | unknown

    def _column(self, node: ast.expr, rows: Levels) -> _Column:
        match node:
            case ast.Constant(value=value):
                return self._constant(value, rows)
            case ast.Name(id=name) if name in self._places:
                numbers = self._choices[name]
                if numbers is None:
                    raise _NoColumnError
                return _Column(numbers[rows[:, self._places[name]]], None, float(np.abs(numbers).max()))
            case ast.Name(id=name) if name in self._constants:
                return self._constant(self._constants[name], rows)
            case ast.BinOp(left=left, op=op, right=right):
                return _applied(type(op), self._column(left, rows), self._column(right, rows))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._column(operand, rows).exact
                return inner._replace(values=(inner.values == 0).astype(np.int64), most=1)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _negative(self._column(operand, rows))
            case ast.BoolOp(op=op, values=values):
                return self._junction(isinstance(op, ast.And), [self._column(value, rows) for value in values])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._comparison(left, ops, comparators, rows)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return _chosen(*(self._column(part, rows) for part in (test, body, orelse)))
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._function(name, [self._column(arg, rows) for arg in args])
            case _:
                raise _NoColumnError

    def _constant(self, value: object, rows: Levels) -> _Column:
        numbers = _numbers([value])  # type: ignore[list-item]
        if numbers is None:
            raise _NoColumnError
        return _Column(np.repeat(numbers, len(rows)), None, float(abs(numbers[0])))

    def _junction(self, conjunction: bool, columns: Sequence[_Column]) -> _Column:
        found = columns[0]
        for column in columns[1:]:
            found = _chosen(found, column, found) if conjunction else _chosen(found, found, column)
        return found

    def _comparison(
        self, left: ast.expr, ops: Sequence[ast.cmpop], comparators: Sequence[ast.expr], rows: Levels
    ) -> _Column:
        first, links = self._column(left, rows), []
        for op, right in zip(ops, comparators, strict=True):
            if isinstance(op, ast.In | ast.NotIn):
                if len(ops) > 1 or not isinstance(right, ast.Tuple | ast.List | ast.Set):
                    raise _NoColumnError
                equal = [_applied(ast.Eq, first, self._column(element, rows)) for element in right.elts]
                found = self._junction(False, equal) if equal else _Column(np.zeros(len(rows), np.int64), None, 0)
                wanted = isinstance(op, ast.In)
                return found._replace(values=((found.values != 0) == wanted).astype(np.int64))
            second = self._column(right, rows)
            links.append(_applied(type(op), first, second))
            first = second
        return self._junction(True, links)

    def _function(self, name: str, columns: Sequence[_Column]) -> _Column:
        first, *others = (column.exact for column in columns)
        if name == "abs":
            return first._replace(values=np.abs(first.values))
        if name in ("min", "max"):
            made = np.minimum if name == "min" else np.maximum
            for column in others:
                unknown = _either(first.unknown, column.unknown)
                first = _Column(made(first.values, column.values), unknown, max(first.most, column.most))
            return first
        if name == "cdiv":
            return _negative(_applied(ast.FloorDiv, _negative(first), others[0]))
        raise _NoColumnError


def _numbers(choices: Sequence[Scalar]) -> NDArray[Any] | None:
    """Choices as numbers that are exact; None where they are not."""
    if any(isinstance(choice, str) or not abs(choice) <= _EXACT for choice in choices):
        return None
    kind = np.float64 if any(isinstance(choice, float) for choice in choices) else np.int64
    return np.array(choices, kind)


def _either(first: Truth | None, second: Truth | None) -> Truth | None:
    return second if first is None else first if second is None else first | second


def _negative(column: _Column) -> _Column:
    column = column.exact
    return column._replace(values=np.negative(column.values))


def _applied(op: type[ast.AST], left: _Column, right: _Column) -> _Column:
    """An operation in each row."""
    if op is ast.Mult:
        return _product(left, right)
    if op in _COMPARISONS:
        return _compared(op, left, right)
    left, right = left.exact, right.exact
    a, b, unknown = left.values, right.values, _either(left.unknown, right.unknown)
    whole = a.dtype.kind == b.dtype.kind == "i"
    if op in _DIVISIONS:
        zero: Truth = b == 0
        if op is not ast.Div and not whole:
            raise _NoColumnError
        most = right.most if op is ast.Mod else left.most if whole and op is ast.FloorDiv else math.inf
        return _bounded(_DIVISIONS[op](a, np.where(zero, 1, b)), _either(unknown, zero), most)
    if op in _SUMS:
        return _bounded(_SUMS[op](a, b), unknown, left.most + right.most)
    raise _NoColumnError


def _product(left: _Column, right: _Column) -> _Column:
    most = left.most * right.most
    unknown, near = _either(left.unknown, right.unknown), _either(left.near, right.near)
    if most <= _EXACT:
        return _Column(np.multiply(left.values, right.values), unknown, most)
    rounded = left.values.astype(np.float64) * right.values.astype(np.float64)
    return _Column(rounded, _either(unknown, ~np.isfinite(rounded)), most, _either(near, np.abs(rounded) > _EXACT))


def _compared(op: type[ast.AST], left: _Column, right: _Column) -> _Column:
    a, b = left.values, right.values
    unknown, near = _either(left.unknown, right.unknown), _either(left.near, right.near)
    if near is not None:
        close: Truth = np.abs(a - b) <= _ROUNDED * np.maximum(np.abs(a), np.abs(b))
        unknown = _either(unknown, near & close)
    return _Column(_COMPARISONS[op](a, b).astype(np.int64), unknown, 1)


def _bounded(values: NDArray[Any], unknown: Truth | None, most: float) -> _Column:
    if most <= _EXACT:
        return _Column(values, unknown, most)
    beyond: Truth = ~(np.abs(values) <= _EXACT)
    return _Column(np.where(beyond, 0, values), _either(unknown, beyond), _EXACT)


def _chosen(test: _Column, body: _Column, orelse: _Column) -> _Column:
    """``body`` where ``test`` is true, else ``orelse``; of what is not known any may be meant."""
    test, body, orelse = test.exact, body.exact, orelse.exact
    true: Truth = test.values != 0
    unknown = test.unknown
    for column, taken in ((body, true), (orelse, ~true)):
        if column.unknown is not None:
            unknown = _either(unknown, column.unknown & taken)
    return _Column(np.where(true, body.values, orelse.values), unknown, max(body.most, orelse.most))
