"""Elementwise operations. All work on any shape, so combining regions may be evaluated on whole arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...ir.core import Op
from ...ir.types import Pointer, Scalar
from ...tile import elementwise as e
from .numbers import Array, dtype_of, fused, odd_float, rounded, truncated, widened
from .program import Program, evaluates

_erf = np.frompyfunc(math.erf, 1, 1)


def _f64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x.astype(np.float64))


def _f64s(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda x, y: function(x.astype(np.float64), y.astype(np.float64))


UNARY: dict[type[Op], Callable[[Array], Array]] = {
    e.Neg: np.negative,
    e.Abs: np.abs,
    e.Exp: _f64(np.exp),
    e.Exp2: _f64(np.exp2),
    e.Exp10: _f64(lambda x: np.power(10.0, x)),
    e.Log: _f64(np.log),
    e.Log2: _f64(np.log2),
    e.Log10: _f64(np.log10),
    e.Sin: _f64(np.sin),
    e.Cos: _f64(np.cos),
    e.Tan: _f64(np.tan),
    e.Atan: _f64(np.arctan),
    e.Tanh: _f64(np.tanh),
    e.Erf: _f64(lambda x: np.asarray(_erf(x), np.float64)),
    e.Sqrt: _f64(np.sqrt),
    e.Rsqrt: _f64(lambda x: np.asarray(1.0 / np.sqrt(x))),
    e.Reciprocal: np.reciprocal,
    e.Floor: np.floor,
    e.Ceil: np.ceil,
    e.RoundEven: np.rint,
    e.Trunc: np.trunc,
}

BINARY: dict[type[Op], Callable[[Array, Array], Array]] = {
    e.Add: np.add,
    e.Sub: np.subtract,
    e.Mul: np.multiply,
    e.Div: np.divide,
    e.Pow: _f64s(np.power),
    e.Atan2: _f64s(np.arctan2),
    e.And: np.bitwise_and,
    e.Or: np.bitwise_or,
    e.Xor: np.bitwise_xor,
    e.Shl: np.left_shift,
    e.Shr: np.right_shift,
}

#: By operation and ``propagate_nan``; of two zeros any.
EXTREMES: dict[tuple[type[Op], bool], Callable[[Array, Array], Array]] = {
    (e.Min, False): np.fmin,
    (e.Min, True): np.minimum,
    (e.Max, False): np.fmax,
    (e.Max, True): np.maximum,
}

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _fit(x: Array, scalar: Scalar) -> Array:
    """A result as ``scalar``: floats rounded, integers wrapped, booleans modulo 2."""
    x = np.asarray(x)
    if scalar.is_float:
        return rounded(x, scalar)
    return (x & 1).astype(np.bool_) if scalar.kind == "bool" else x.astype(dtype_of(scalar))


def _computable(x: Array, scalar: Scalar) -> Array:
    return x.astype(np.uint8) if scalar.kind == "bool" else widened(x, scalar)


@evaluates(e.Constant)
def constant(op: e.Constant, program: Program) -> Sequence[Array]:
    if isinstance(op.type.elem, Pointer):
        return (np.zeros(op.type.shape, np.uint64),)
    scalar = op.type.elem
    if scalar.is_float:
        return (rounded(np.full(op.type.shape, float(op.value)), scalar),)
    bits = int(op.value) & ((1 << scalar.bits) - 1)
    return (np.full(op.type.shape, bits, np.uint64).astype(dtype_of(scalar)),)


@evaluates(*UNARY)
def unary(op: e.Unary, program: Program) -> Sequence[Array]:
    scalar = op.x.type.scalar
    with np.errstate(all="ignore"):
        return (_fit(UNARY[type(op)](_computable(program.get(op.x), scalar)), scalar),)


@evaluates(e.Not)
def bit_not(op: e.Not, program: Program) -> Sequence[Array]:
    return (np.asarray(np.invert(program.get(op.x))),)


@evaluates(*BINARY)
def binary(op: e.Binary, program: Program) -> Sequence[Array]:
    scalar = op.lhs.type.scalar
    lhs, rhs = (_computable(program.get(v), scalar) for v in (op.lhs, op.rhs))
    with np.errstate(all="ignore"):
        return (_fit(BINARY[type(op)](lhs, rhs), scalar),)


@evaluates(e.IntDiv)
def int_div(op: e.IntDiv, program: Program) -> Sequence[Array]:
    """Truncated; all bits set where the divisor is 0."""
    scalar = op.lhs.type.scalar
    lhs, rhs = (_computable(program.get(v), scalar) for v in (op.lhs, op.rhs))
    with np.errstate(all="ignore"):
        quotient = _fit((lhs - np.fmod(lhs, rhs)) // rhs, scalar)
    return (np.where(rhs == 0, np.invert(np.zeros_like(quotient)), quotient),)


@evaluates(e.Rem)
def remainder(op: e.Rem, program: Program) -> Sequence[Array]:
    """With the dividend's sign; of integers all bits set where the divisor is 0."""
    scalar = op.lhs.type.scalar
    lhs, rhs = (_computable(program.get(v), scalar) for v in (op.lhs, op.rhs))
    with np.errstate(all="ignore"):
        made = np.fmod(lhs, rhs)
    return (_fit(made if scalar.is_float else np.where(rhs == 0, np.invert(np.zeros_like(made)), made), scalar),)


@evaluates(e.MulHigh)
def mul_high(op: e.MulHigh, program: Program) -> Sequence[Array]:
    scalar = op.lhs.type.scalar
    if scalar.bits <= 32:
        wide = np.int64 if scalar.is_signed else np.uint64
        product = program.get(op.lhs).astype(wide) * program.get(op.rhs).astype(wide)
        return (_fit(product >> wide(scalar.bits), scalar),)
    exact = program.get(op.lhs).astype(object) * program.get(op.rhs).astype(object)
    return (np.asarray(np.asarray(exact >> scalar.bits, object).astype(dtype_of(scalar))),)


@evaluates(e.Min, e.Max)
def extreme(op: e.Min | e.Max, program: Program) -> Sequence[Array]:
    function = EXTREMES[type(op), op.propagate_nan]
    scalar = op.lhs.type.scalar
    lhs, rhs = (_computable(program.get(v), scalar) for v in (op.lhs, op.rhs))
    with np.errstate(all="ignore"):
        made = function(lhs, rhs)
        if scalar.is_float:  # of two zeros -0.0 is the smaller one
            sign = -1 if isinstance(op, e.Min) else 1
            made = np.where((lhs == 0) & (rhs == 0), sign * (sign * lhs + sign * rhs), made)
        return (_fit(made, scalar),)


@evaluates(e.Compare)
def compare(op: e.Compare, program: Program) -> Sequence[Array]:
    lhs, rhs = program.get(op.lhs), program.get(op.rhs)
    if isinstance(op.lhs.type.elem, Scalar):
        lhs, rhs = widened(lhs, op.lhs.type.elem), widened(rhs, op.lhs.type.elem)
    return (np.asarray(COMPARE[op.predicate](lhs, rhs)),)


@evaluates(e.Select)
def select(op: e.Select, program: Program) -> Sequence[Array]:
    condition = program.get(op.condition)
    return (np.asarray(np.where(condition, program.get(op.on_true), program.get(op.on_false))),)


@evaluates(e.Fma)
def fma(op: e.Fma, program: Program) -> Sequence[Array]:
    x, y, z = (program.get(v) for v in (op.x, op.y, op.z))
    return (fused(x, y, z, op.x.type.scalar),)


@evaluates(e.Cast)
def cast(op: e.Cast, program: Program) -> Sequence[Array]:
    x, source, to = program.get(op.x), op.x.type.scalar, op.to
    if not isinstance(to, Scalar):
        return ()
    with np.errstate(all="ignore"):
        if to.kind == "bool":
            return (np.asarray(widened(x, source) != 0),)
        if to.is_float:
            if not source.is_float and to.bits >= 32:
                return (np.asarray(x.astype(dtype_of(to))),)
            wide = x.astype(np.float64) if source.is_float or source.bits < 64 else odd_float(x)
            return (rounded(wide, to, to_zero=op.rounding == "rtz" and source.is_float),)
        if source.is_float:
            return (truncated(x, source, to),)
        return (np.asarray(x.astype(dtype_of(to))),)


@evaluates(e.Bitcast)
def bitcast(op: e.Bitcast, program: Program) -> Sequence[Array]:
    if isinstance(op.to, Pointer):
        program.memory.foreign |= isinstance(op.x.type.elem, Scalar)
    return (program.get(op.x).view(dtype_of(op.to)),)


@evaluates(e.AddPtr)
def addptr(op: e.AddPtr, program: Program) -> Sequence[Array]:
    size = np.uint64(op.pointer.type.pointee.bytes)
    offset = program.get(op.offset)
    wide = offset.astype(np.int64).view(np.uint64) if offset.dtype.kind == "i" else offset
    with np.errstate(all="ignore"):
        return (np.asarray(program.get(op.pointer) + wide.astype(np.uint64) * size),)


@evaluates(e.Hint)
def hint(op: e.Hint, program: Program) -> Sequence[Array]:
    return (program.get(op.x),)
