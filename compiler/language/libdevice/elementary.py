"""Exponentials, logarithms, circular and hyperbolic functions, rounding to integers."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from ...ir.types import I64
from ..arithmetic import mod as fmod
from ..conditions import where
from ..inline import library
from ..maths import (
    abs,
    atan,
    atan2,
    ceil,
    copysign,
    cos,
    erf,
    exp2,
    exp10,
    floor,
    fma,
    isinf,
    isnan,
    log,
    log2,
    log10,
    maximum,
    minimum,
    pow,
    rint,
    rsqrt,
    sin,
    sqrt,
    tanh,
    trunc,
)
from ..maths import exp as fast_expf
from ..maths import exp_within_two as exp


@library
def finitef(x):
    """int1 in the shape of ``x``: it is neither infinite nor NaN."""
    return abs(x) < float("inf")


@library
def isfinited(x):
    """int1 in the shape of ``x``: it is neither infinite nor NaN."""
    return abs(x) < float("inf")


@library
def round(x):
    """Nearest integer, halves away from zero."""
    nearest = trunc(x)
    # As x - nearest is written a product that makes x would fuse with it, and the rest would be that of another number.
    rest = fma(x, 1.0, -nearest)
    return where(abs(rest) >= 0.5, nearest + copysign(x * 0 + 1.0, x), nearest)


@library
def llrint(x):
    """Nearest integer as int64, halves to even."""
    return rint(x).to(I64)


@library
def llround(x):
    """Nearest integer as int64, halves away from zero."""
    return round(x).to(I64)


@library
def fast_dividef(x, y):
    """x / y as the operator divides: f32 may be off by 2 units in the last place."""
    return x / y


@library
def fast_tanf(x):
    """sin(x) / cos(x), divided as the operator does."""
    return sin(x) / cos(x)


fast_exp10f = exp10
fast_log10f = log10
fast_powf = pow
nearbyint = rint
fast_exp2f = exp2
fast_logf = log
fast_log2f = log2
fast_sinf = sin
fast_cosf = cos
fast_tanhf = tanh

fmax = maximum
fmin = minimum
isinfd = isinf
isnand = isnan
fabs = abs

__all__ = [
    "abs",
    "atan",
    "atan2",
    "ceil",
    "copysign",
    "cos",
    "erf",
    "exp",
    "exp10",
    "exp2",
    "fabs",
    "fast_cosf",
    "fast_dividef",
    "fast_exp10f",
    "fast_exp2f",
    "fast_expf",
    "fast_log10f",
    "fast_log2f",
    "fast_logf",
    "fast_powf",
    "fast_sinf",
    "fast_tanf",
    "fast_tanhf",
    "finitef",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "isfinited",
    "isinf",
    "isinfd",
    "isnan",
    "isnand",
    "llrint",
    "llround",
    "log",
    "log10",
    "log2",
    "nearbyint",
    "pow",
    "rint",
    "round",
    "rsqrt",
    "sin",
    "sqrt",
    "tanh",
    "trunc",
]
