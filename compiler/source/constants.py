"""Arithmetic on values known at compile time, with limits: kernel text may come from anywhere."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from ..errors import NotComputable, UnsupportedSyntax
from ..language.extent import MAX_LENGTH, bounded
from ..printable import shown

#: Integers beyond this many bits are refused; the widest type of the language has 64.
MAX_BITS = 256

BINARY: dict[type[ast.operator], Callable[[object, object], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}

COMPARE: dict[type[ast.cmpop], Callable[[object, object], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,  # type: ignore[dict-item]
    ast.LtE: operator.le,  # type: ignore[dict-item]
    ast.Gt: operator.gt,  # type: ignore[dict-item]
    ast.GtE: operator.ge,  # type: ignore[dict-item]
    ast.Is: lambda a, b: a is b or (a == b and type(a) is type(b)),
    ast.IsNot: lambda a, b: not (a is b or (a == b and type(a) is type(b))),
    ast.In: lambda a, b: a in b,  # type: ignore[operator]
    ast.NotIn: lambda a, b: a not in b,  # type: ignore[operator]
}

UNARY: dict[type[ast.unaryop], Callable[[object], object]] = {
    ast.USub: operator.neg,  # type: ignore[dict-item]
    ast.UAdd: operator.pos,  # type: ignore[dict-item]
    ast.Invert: operator.invert,  # type: ignore[dict-item]
    ast.Not: operator.not_,
}


def binary(op: ast.operator, lhs: object, rhs: object) -> object:
    """``lhs op rhs`` of compile-time values; raises NotComputable with what Python said, or past the limits."""
    _guard(op, lhs, rhs)
    try:
        result = bounded(BINARY[type(op)](lhs, rhs))
        if isinstance(result, complex):
            raise ValueError("the result is complex")
        return result
    except (TypeError, ValueError, ArithmeticError, KeyError) as error:
        raise NotComputable(f"{shown(lhs)} and {shown(rhs)} at compile time: {error}") from None


def _guard(op: ast.operator, lhs: object, rhs: object) -> None:
    """Refuse operations whose result could be huge before computing it."""
    if isinstance(lhs, int) and isinstance(rhs, int):
        growth = {
            ast.Pow: lhs.bit_length() * max(0, rhs),
            ast.LShift: lhs.bit_length() + max(0, rhs),
        }.get(type(op), max(lhs.bit_length(), rhs.bit_length()))
        if growth > MAX_BITS:
            raise UnsupportedSyntax(f"the integer has more than {MAX_BITS} bits")
    elif isinstance(op, ast.Mult):
        for sequence, times in ((lhs, rhs), (rhs, lhs)):
            countable = isinstance(sequence, str | tuple) and isinstance(times, int)
            if countable and len(sequence) * times > MAX_LENGTH:  # type: ignore[operator, arg-type]
                raise UnsupportedSyntax(f"longer than {MAX_LENGTH} elements")
    elif isinstance(lhs, str) and isinstance(op, ast.Mod):
        raise UnsupportedSyntax("strings are formatted by f-strings only")


def unary(op: ast.unaryop, value: object) -> object:
    """``op value`` of a compile-time value."""
    try:
        return UNARY[type(op)](value)
    except TypeError as error:
        raise NotComputable(f"{shown(value)} at compile time: {error}") from None


def compare(op: ast.cmpop, lhs: object, rhs: object) -> bool:
    """``lhs op rhs`` of compile-time values."""
    try:
        return COMPARE[type(op)](lhs, rhs)
    except TypeError as error:
        raise NotComputable(f"{shown(lhs)} and {shown(rhs)} at compile time: {error}") from None
