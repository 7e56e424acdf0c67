"""Arithmetic on compile-time constants, exactly as the interpreter does it on tiles.

Integers wrap to their type. Floats are computed in f64 and rounded once: for one +, -, * or / on f32 or narrower types
that equals rounding after every step (f64 has more than twice the bits), so folding never changes a result.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from ...ir.core import Op, Value
from ...ir.types import Scalar
from .. import elementwise as e
from ..control import For
from ..formats import round_to

Number = int | float


def _quotient(a: Number, b: Number) -> Number | None:
    if b == 0:
        return None
    return int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: Number, b: Number) -> Number | None:
    if b == 0 or isinstance(a, float) or isinstance(b, float):
        return None
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _float_quotient(a: Number, b: Number) -> Number | None:
    return None if b == 0 else a / b


def _smaller(a: Number, b: Number) -> Number | None:
    return None if a != a or b != b or (a == b == 0) and isinstance(a, float) else min(a, b)


def _larger(a: Number, b: Number) -> Number | None:
    return None if a != a or b != b or (a == b == 0) and isinstance(a, float) else max(a, b)


def _shifted_left(a: Number, b: Number) -> Number | None:
    return int(a) << int(b) if 0 <= b < 64 else None


def _shifted_right(a: Number, b: Number) -> Number | None:
    return int(a) >> int(b) if 0 <= b < 64 else None


_BINARY: dict[type[Op], Callable[[Number, Number], Number | None]] = {
    e.Add: operator.add,
    e.Sub: operator.sub,
    e.Mul: operator.mul,
    e.Div: _float_quotient,
    e.IntDiv: _quotient,
    e.Rem: _remainder,
    e.And: lambda a, b: int(a) & int(b),
    e.Or: lambda a, b: int(a) | int(b),
    e.Xor: lambda a, b: int(a) ^ int(b),
    e.Shl: _shifted_left,
    e.Shr: _shifted_right,
    e.Min: _smaller,
    e.Max: _larger,
}

_PREDICATES: dict[str, Callable[[Number, Number], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def evaluate(op: Op, values: list[Number]) -> Number | None:
    """The value of the elementwise ``op`` on constants; None where folding could change a result."""
    binary = _BINARY.get(type(op))
    if binary is not None:
        a, b = values
        return _fit(binary(a, b), op.results[0].type.scalar)
    match op:
        case e.Compare():
            return _PREDICATES[op.predicate](*values)
        case e.Neg():
            return _fit(-values[0], op.x.type.scalar)
        case e.Not():
            return op.x.type.scalar.wrap(~int(values[0]))
        case e.Abs():
            return _fit(abs(values[0]), op.x.type.scalar)
        case e.Cast() if isinstance(op.to, Scalar):
            return _cast(op, values[0], op.to)
    return None


def _fit(value: Number | None, type: Scalar) -> Number | None:
    if value is None:
        return None
    return round_to(float(value), type) if type.is_float else type.wrap(int(value))


def _cast(op: e.Cast, value: Number, to: Scalar) -> Number | None:
    if to.kind == "bool":
        return value != 0
    if to.is_float:
        rounded = round_to(float(value), to)
        exact = rounded == value
        return rounded if exact or (op.rounding == "rtne" and op.x.type.is_float) else None
    if isinstance(value, float):
        low, high = (-(1 << to.bits - 1), 1 << to.bits - 1) if to.is_signed else (0, 1 << to.bits)
        return int(value) if math.isfinite(value) and low <= int(value) < high else None
    return to.wrap(value)


def trip_count(lower: int, upper: int, step: int) -> int:
    """Iterations of a loop over such bounds; ``len`` of a range takes no more than 2**63 - 1. ``step``: not 0."""
    return max(0, -((lower - upper) // step))


def known_number(value: Value) -> int | None:
    """The integer that ``value`` is; None where that is not known."""
    return int(value.op.value) if isinstance(value.op, e.Constant) else None


def known_trips(loop: For) -> int | None:
    """Iterations of ``loop``; None where they are not known."""
    lower, upper, step = known_number(loop.lower), known_number(loop.upper), known_number(loop.step)
    return trip_count(lower, upper, step) if lower is not None and upper is not None and step else None
