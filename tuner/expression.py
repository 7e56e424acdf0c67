"""A small safe language for constraints, grids, shapes, FLOP and byte formulas.

The text is parsed with :mod:`ast`, every node is checked against a whitelist and turned into closures; nothing is
ever given to ``eval``. There is arithmetic, comparison, ``and or not``, ``a if c else b``, ``x in (1, 2)``, which all
mean what they do in Python, and the functions in :data:`FUNCTIONS`. Text is data only: it compares, it does not
concatenate or format. Integers, exponents, text length and nesting are capped, so that an expression from a stranger
costs microseconds.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

from deuteron.compiler.syntax import expression_tree

from .codec import Scalar
from .errors import ExpressionError

MAX_TEXT = 2000
MAX_NODES = 400
MAX_DEPTH = 40
MAX_BITS = 1024

Names: TypeAlias = Mapping[str, Scalar]
_Run: TypeAlias = Callable[[Names], Scalar]
_Number: TypeAlias = int | float


def cdiv(a: _Number, b: _Number) -> _Number:
    """Quotient rounded towards plus infinity."""
    return -(-a // b)


def next_power_of_2(n: _Number) -> int:
    """The smallest power of two that is >= n (1 for n <= 1)."""
    if not isinstance(n, int):
        raise TypeError("next_power_of_2 takes a whole number")
    return 1 << max(0, n - 1).bit_length()


FUNCTIONS: dict[str, tuple[Callable[..., _Number], int, int]] = {
    "abs": (abs, 1, 1),
    "cdiv": (cdiv, 2, 2),
    "max": (max, 2, 16),
    "min": (min, 2, 16),
    "next_power_of_2": (next_power_of_2, 1, 1),
}


class _Fault(Exception):
    def __init__(self, message: str, column: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.column, self.hint = message, column, hint


def _power(base: _Number, exponent: _Number) -> _Number:
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        if base.bit_length() * exponent > MAX_BITS:
            raise OverflowError
        return int(base**exponent)
    if base < 0 and not float(exponent).is_integer():
        raise ArithmeticError("root of a negative number")
    return float(base**exponent)


def _shift_left(value: int, count: int) -> int:
    if count > MAX_BITS:
        raise OverflowError
    return value << count


_BINARY: dict[type[ast.operator], Callable[..., _Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.LShift: _shift_left,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_UNARY: dict[type[ast.unaryop], Callable[..., _Number]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_COMPARE: dict[type[ast.cmpop], Callable[..., bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


#: Of two whole numbers, the second not 0, these give a whole number.
_PLAIN = frozenset({operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, cdiv})


def _apply(call: Callable[..., _Number], values: list[Scalar], column: int) -> _Number:
    """Call an arithmetic function with every guard: no text, no overflow, no complex or infinite result."""
    for value in values:
        if isinstance(value, str):
            raise _Fault(f"arithmetic on the text {value!r}", column)
    try:
        result = call(*values)
    except ZeroDivisionError:
        raise _Fault("division by zero", column) from None
    except OverflowError:
        raise _Fault(f"the result has more than {MAX_BITS} bits", column) from None
    except (TypeError, ValueError, ArithmeticError) as error:
        raise _Fault(str(error), column) from None
    if isinstance(result, int):
        if result.bit_length() > MAX_BITS:
            raise _Fault(f"the result has more than {MAX_BITS} bits", column)
    elif not math.isfinite(result):
        raise _Fault("the result is not finite", column)
    return result


def _of_two(call: Callable[..., _Number], left: _Run, right: _Run, column: int) -> _Run:
    """What is nearly always asked for, as a search does some hundred thousand times: two whole numbers, nothing to
    guard against but a division by zero and length."""

    def run(names: Names) -> Scalar:
        a, b = left(names), right(names)
        if type(a) is int and type(b) is int and b:
            result = call(a, b)
            if isinstance(result, int) and result.bit_length() <= MAX_BITS:
                return result
        return _apply(call, [a, b], column)

    return run


class _Builder:
    """Turns a checked syntax tree into closures."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        self.nodes = 0

    def column(self, node: ast.expr) -> int:
        return len(self.text.encode()[: node.col_offset].decode(errors="ignore"))

    def build(self, node: ast.expr, depth: int = 0) -> _Run:
        self.nodes += 1
        column = self.column(node)
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise _Fault("the expression is too large", column)
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return self._constant(value, column)
            case ast.Name(id=name):
                return self._name(name, column)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._call(_BINARY[type(op)], [left, right], column, depth)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.build(operand, depth + 1)
                return lambda names: not inner(names)
            case ast.UnaryOp(op=unary, operand=operand):
                return self._call(_UNARY[type(unary)], [operand], column, depth)
            case ast.BoolOp(op=junction, values=values):
                return self._junction(isinstance(junction, ast.And), values, depth)
            case ast.Compare():
                return self._compare(node, depth)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition, yes, no = (self.build(n, depth + 1) for n in (test, body, orelse))
                return lambda names: yes(names) if condition(names) else no(names)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._function(name, args, column, depth)
            case _:
                raise _Fault(
                    f"{type(node).__name__} is not part of the expression language",
                    column,
                    "numbers, names, + - * / // % ** << >> & | ^, comparisons, and/or/not, in (..), "
                    f"x if c else y, {', '.join(FUNCTIONS)}",
                )

    def _constant(self, value: Scalar, column: int) -> _Run:
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise _Fault(f"a number of more than {MAX_BITS} bits", column)
        return lambda names: value

    def _name(self, name: str, column: int) -> _Run:
        self.names.add(name)

        def run(names: Names) -> Scalar:
            try:
                return names[name]
            except KeyError:
                close = difflib.get_close_matches(name, list(names), n=1)
                known = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
                raise _Fault(f"unknown name {name!r}", column, known) from None

        return run

    def _call(self, call: Callable[..., _Number], operands: list[ast.expr], column: int, depth: int) -> _Run:
        runs = [self.build(operand, depth + 1) for operand in operands]
        if call in _PLAIN:
            return _of_two(call, runs[0], runs[1], column)
        return lambda names: _apply(call, [run(names) for run in runs], column)

    def _junction(self, conjunction: bool, values: list[ast.expr], depth: int) -> _Run:
        *runs, last = (self.build(value, depth + 1) for value in values)

        def junction(names: Names) -> Scalar:
            """The first operand that decides, else the last, as in Python."""
            for run in runs:
                value = run(names)
                if bool(value) is not conjunction:
                    return value
            return last(names)

        return junction

    def _function(self, name: str, args: list[ast.expr], column: int, depth: int) -> _Run:
        if name not in FUNCTIONS:
            raise _Fault(f"unknown function {name!r}", column, f"known: {', '.join(FUNCTIONS)}")
        call, least, most = FUNCTIONS[name]
        if not least <= len(args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise _Fault(f"{name} takes {wanted} arguments, not {len(args)}", column)
        return self._call(call, args, column, depth)

    def _compare(self, node: ast.Compare, depth: int) -> _Run:
        first = self.build(node.left, depth + 1)
        links = [self._link(op, right, depth) for op, right in zip(node.ops, node.comparators, strict=True)]
        if len(links) == 1:
            only = links[0]
            return lambda names: only(first(names), names)[0]

        def run(names: Names) -> bool:
            left = first(names)
            for link in links:
                holds, left = link(left, names)
                if not holds:
                    return False
            return True

        return run

    def _link(self, op: ast.cmpop, right: ast.expr, depth: int) -> Callable[[Scalar, Names], tuple[bool, Scalar]]:
        column = self.column(right)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.Tuple | ast.List | ast.Set):
                raise _Fault("'in' needs a list of values, as in x in (1, 2)", column)
            members = [self.build(element, depth + 1) for element in right.elts]
            wanted = isinstance(op, ast.In)
            return lambda left, names: (
                any(left == member(names) for member in members) is wanted,
                left,
            )
        if type(op) not in _COMPARE:
            raise _Fault("this comparison is not part of the expression language", column)
        compare, operand = _COMPARE[type(op)], self.build(right, depth + 1)

        def link(left: Scalar, names: Names) -> tuple[bool, Scalar]:
            value = operand(names)
            try:
                return compare(left, value), value
            except TypeError:
                raise _Fault(f"cannot order {left!r} and {value!r}", column) from None

        return link


class Expression:
    """A parsed expression: ``text``, the free ``names`` in it, of how many ``nodes`` it is, and how to evaluate it.

    Build with :meth:`parse`. Immutable; two expressions with the same text are equal.
    """

    __slots__ = ("_run", "names", "nodes", "text")

    def __init__(self, text: str, names: frozenset[str], nodes: int, run: _Run) -> None:
        self.text = text
        self.names = names
        self.nodes = nodes
        self._run = run

    @staticmethod
    def parse(text: str) -> Expression:
        """Parse ``text``; raises :class:`ExpressionError` with a caret."""
        return _parse(text.strip())

    def evaluate(self, names: Names) -> Scalar:
        """The value under ``names``; raises :class:`ExpressionError` (unknown name, division by zero ...)."""
        try:
            return self._run(names)
        except _Fault as fault:
            raise ExpressionError(fault.message, text=self.text, column=fault.column, hint=fault.hint) from None

    def evaluate_int(self, names: Names) -> int:
        """The value, which must be a whole number (a float such as ``4.0`` counts)."""
        value = self.evaluate(names)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ExpressionError(
                f"gives {value!r}, not a whole number",
                text=self.text,
                column=0,
                hint="use // or cdiv",
            )
        return value

    def evaluate_number(self, names: Names) -> float:
        """The value, which must be a number, as a float."""
        value = self.evaluate(names)
        if isinstance(value, str):
            raise ExpressionError(f"gives the text {value!r}, not a number", text=self.text, column=0)
        try:
            return float(value)
        except OverflowError:
            raise ExpressionError(
                "gives a number of more than 1023 bits, which floats do not hold", text=self.text, column=0
            ) from None

    def conjuncts(self) -> tuple[Expression, ...]:
        """The parts of a top-level ``and``, or the expression itself: each can be tested on its own."""
        return _conjuncts(self)

    def replacing(self, values: Mapping[str, str]) -> Expression:
        """The expression with the expressions ``values`` in place of names; raises :class:`ExpressionError` for one
        of them that is none, and where the result is too large."""
        used = {name: expression_tree(Expression.parse(values[name]).text).body for name in self.names & {*values}}
        if not used:
            return self
        return Expression.parse(ast.unparse(_Replacing(used).visit(expression_tree(self.text))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


class _Replacing(ast.NodeTransformer):
    """Puts trees in place of names, but for those of functions."""

    def __init__(self, trees: Mapping[str, ast.expr]) -> None:
        self.trees = trees

    def visit_Call(self, node: ast.Call) -> ast.Call:  # noqa: N802
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:  # noqa: N802
        return self.trees.get(node.id, node)


@lru_cache(maxsize=4096)
def _conjuncts(expression: Expression) -> tuple[Expression, ...]:
    body = expression_tree(expression.text).body
    if not (isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And)):
        return (expression,)
    parts = [ast.get_source_segment(expression.text, value) for value in body.values]
    return tuple(part for text in parts if text for part in Expression.parse(text).conjuncts())


@lru_cache(maxsize=4096)
def _parse(text: str) -> Expression:
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"an expression of {len(text)} characters; the limit is {MAX_TEXT}", text=text)
    if not text or "\n" in text or "\r" in text:
        raise ExpressionError("an expression is one line of text and not empty", text=text)
    try:
        tree = expression_tree(text)
    except SyntaxError as error:
        column = min(max((error.offset or 1) - 1, 0), len(text))
        raise ExpressionError(f"not an expression: {error.msg}", text=text, column=column) from None
    except (RecursionError, MemoryError, ValueError):
        raise ExpressionError("the expression cannot be parsed", text=text, column=0) from None
    builder = _Builder(text)
    try:
        run = builder.build(tree.body)
    except _Fault as fault:
        raise ExpressionError(fault.message, text=text, column=fault.column, hint=fault.hint) from None
    return Expression(text, frozenset(builder.names), builder.nodes, run)
