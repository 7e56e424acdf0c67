"""exp(x) - 1, log(1 + x), hyperbolic functions and their inverses, for f32 and f64; narrower types are computed in f32.

f32 takes what is exact apart: log(1 + x) and exp(x) - 1 are a power of two, added or multiplied, and a polynomial. All
others come from these two. Of f64 the error of a step that would cost accuracy is kept and added in the end.
"""

from __future__ import annotations

from ...ir.types import F32, F64, U32
from ..arithmetic import cast_to, constant
from ..builtin import builtin
from ..conditions import where
from ..maths import abs, copysign, div_rn, exp_rn, isinf, log, sqrt, sqrt_rn
from ..tensor import Operand, tensor
from .bits import bits_of, by_type, polynomial, reciprocal, reinterpret, sum_rn, two_sum, with_sign_of
from .coefficients import EXPM1_TAIL_F32
from .joined import clamp, fma, minimum
from .logarithm import LN2_OF_STEPS, log_of_one_and

_LN2, _LOG2_E = 0.6931471805599453, 1.4426950408889634
#: ln 2 as f32 and what that lacks.
_LN2_F32, _LN2_F32_REST = 0.6931471824645996, -1.9046543e-9
#: Added to a f32 it leaves an integer in the lowest bits.
_ROUNDING = float(3 << 22)
#: Below this exp(x) - 1 of f32 is x.
_SMALL = 2.0**-24


def _expm1_of_f32(x: tensor, shift: int) -> tensor:
    """(exp(x) - 1) / 2**shift of ``x`` of magnitude 2**-24 or more, infinite or NaN; ``shift`` is 1 or 2."""
    x = clamp(x, -25.0, 88.25 + 0.7 * shift)  # beyond the upper one the result is infinite, or its double
    # Where half or twice a polynomial were taken from 1, its rounding would count twice: 0 goes further than it need.
    shifted = where(abs(x) < 0.42, _ROUNDING, fma(x, _LOG2_E, _ROUNDING))
    n = sum_rn(shifted, -_ROUNDING)
    r = fma(n, -_LN2_F32_REST, fma(n, -_LN2_F32, x))
    part = fma(fma(r, r, -0.0), polynomial(r, EXPM1_TAIL_F32), r)
    power = reinterpret((bits_of(shifted) + (127 - shift)) << 23, F32)
    less = sum_rn(power, -(2.0**-shift))
    return sum_rn(fma(part, power, sum_rn(sum_rn(power, -less), -(2.0**-shift))), less)


@builtin
def expm1(x: Operand) -> tensor:
    """exp(x) - 1, accurate near 0, in the float type of ``x`` (integers: f32)."""

    def double(x: tensor) -> tensor:
        u = exp_rn(x)  # Kahan
        near = (u - 1.0) * (x / log(u))
        return where(u == 1.0, x, where((u - 1.0 == -1.0) | isinf(u), u - 1.0, near))

    return by_type(x, "expm1", lambda x: where(abs(x) < _SMALL, x, 2.0 * _expm1_of_f32(x, 1)), double)


@builtin
def sinh(x: Operand) -> tensor:
    """Hyperbolic sine in the float type of ``x`` (integers: f32)."""

    def single(x: tensor) -> tensor:
        half = 2.0 * _expm1_of_f32(abs(x), 2)
        finite = minimum(half, 2.0**60)
        below = fma(finite, 2.0, 1.0)
        inverse = reciprocal(below)
        ratio = fma(finite, inverse, -0.0)
        made = sum_rn(half, fma(inverse, fma(-ratio, below, finite), ratio))
        return where(abs(x) < 2.0**-12, x, with_sign_of(made, x))

    def double(x: tensor) -> tensor:
        a = abs(x)
        e, h = expm1(a), exp_rn(0.5 * a)  # exp(a) itself overflows before sinh does
        return copysign(where(a > 20.0, 0.5 * h * h, 0.5 * (e + e / (e + 1.0))), x)

    return by_type(x, "sinh", single, double)


@builtin
def cosh(x: Operand) -> tensor:
    """Hyperbolic cosine in the float type of ``x`` (integers: f32)."""

    def single(x: tensor) -> tensor:
        half = fma(_expm1_of_f32(abs(x), 2), 2.0, 0.5)
        return sum_rn(half, 0.25 * reciprocal(half))

    def double(x: tensor) -> tensor:
        a = abs(x)
        e, h = exp_rn(a), exp_rn(0.5 * a)
        return where(a > 20.0, 0.5 * h * h, 0.5 * (e + 1.0 / e))

    return by_type(x, "cosh", single, double)


def _log1p_of_f32(x: tensor) -> tensor:
    """log(1 + x) of finite ``x`` >= -1; of -0 it is -0. 1 + x is 2**-k times a number from 3/4 to 3/2: what that has
    beyond 1 is exact, without what 1 + x is rounded by. Of x = -1 it is -2**127, and the series -inf, as it should."""
    k = (0x3FBFFFFF - bits_of(sum_rn(x, 1.0))) & -0x800000
    scaled = reinterpret(bits_of(x) + k, F32)
    f = sum_rn(scaled, -fma(reinterpret(0x40800000 + k, F32), -0.25, 1.0))
    return fma(cast_to(k, F32), -LN2_OF_STEPS, log_of_one_and(f))


@builtin
def log1p(x: Operand) -> tensor:
    """log(1 + x), accurate near 0, in the float type of ``x`` (integers: f32)."""

    def single(x: tensor) -> tensor:
        bits = reinterpret(bits_of(sum_rn(x, 1.0)), U32)  # of negative numbers beyond those of infinity
        return where(bits < 0x7F800000, _log1p_of_f32(x), fma(x, float("inf"), float("inf")))  # NaN below -1

    def double(x: tensor) -> tensor:
        u = 1.0 + x  # Kahan: what is lost of x in the rounding of 1 + x is added
        lost = where(abs(x) < 1.0, x - (u - 1.0), 1.0 - (u - x))
        return where(u == 1.0, x, where(isinf(u) | (u == 0.0), log(u), log(u) + lost / u))

    return by_type(x, "log1p", single, double)


def _large_or_log1p(a: tensor, v: tensor) -> tensor:
    """log(2 a) of large f32 ``a`` >= 0, else log(1 + v); infinite and NaN as ``a`` is."""
    large = a > 2.0**30
    made = sum_rn(_log1p_of_f32(where(large, a, v)), where(large, _LN2, 0.0))
    return where(a < float("inf"), made, a)


def _log1p(v: tensor, rest: tensor) -> tensor:
    """log(1 + v + rest) of f64, of a rest far below v."""
    u, lost = two_sum(constant(1.0, F64, v.shape), v)
    return log(u) + div_rn(lost + rest, u)


@builtin
def asinh(x: Operand) -> tensor:
    """Inverse hyperbolic sine in the float type of ``x`` (integers: f32)."""

    def single(x: tensor) -> tensor:
        a = abs(x)
        v = fma(a, a * reciprocal(1.0 + sqrt(fma(a, a, 1.0))), a)
        return where(a < 2.0**-12, x, with_sign_of(_large_or_log1p(a, v), x))

    def double(x: tensor) -> tensor:
        a = abs(x)
        square = a * a
        v, rest = two_sum(a, div_rn(square, 1.0 + sqrt_rn(1.0 + square)))
        made = where(a > 1e9, log(a) + _LN2, _log1p(v, rest))
        return where((x == 0) | isinf(x), x, copysign(made, x))

    return by_type(x, "asinh", single, double)


@builtin
def acosh(x: Operand) -> tensor:
    """Inverse hyperbolic cosine, NaN below 1, in the float type of ``x`` (integers: f32)."""

    def single(x: tensor) -> tensor:
        t = x - 1.0
        made = _large_or_log1p(x, t + sqrt_rn(fma(t, t, 2.0 * t)))
        return where(x < 1, float("nan"), made)

    def double(x: tensor) -> tensor:
        t = x - 1.0
        v, rest = two_sum(t, sqrt_rn(fma(t, t, 2.0 * t)))
        made = where(x > 1e9, log(x) + _LN2, _log1p(v, rest))
        return where(x < 1, float("nan"), where(x == 1, 0.0, made))

    return by_type(x, "acosh", single, double)


@builtin
def atanh(x: Operand) -> tensor:
    """Inverse hyperbolic tangent, infinite at 1 and -1, NaN beyond, in the float type of ``x`` (integers: f32)."""

    def single(x: tensor) -> tensor:
        a = abs(x)
        twice = a + a
        made = 0.5 * _log1p_of_f32(fma(twice, a * reciprocal(1.0 - a), twice))
        made = where(a < 1, made, where(a == 1, float("inf"), float("nan")))
        return where(a < 2.0**-12, x, with_sign_of(made, x))

    def double(x: tensor) -> tensor:
        a = abs(x)
        below = where(a < 1, a, 0.0)
        d, lost = two_sum(constant(1.0, F64, a.shape), -below)
        q = div_rn(2.0 * below, d)
        made = 0.5 * _log1p(q, div_rn(fma(-q, d, 2.0 * below) - q * lost, d))
        made = where(a == 1, float("inf"), where(a < 1, made, float("nan")))
        return where(x == 0, x, copysign(made, x))

    return by_type(x, "atanh", single, double)


__all__ = ["acosh", "asinh", "atanh", "cosh", "expm1", "log1p", "sinh"]
