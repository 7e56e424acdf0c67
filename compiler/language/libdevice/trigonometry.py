"""Circular and inverse hyperbolic functions of f64; f32 and narrower types are computed in f64.

Where a step would cost accuracy, its error is kept and added in the end.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.types import F64
from ..arithmetic import cast_to, constant, where
from ..builtin import builtin
from ..maths import abs, copysign, cos, div_rn, floor, isinf, log, rint, sin, sqrt_rn
from ..tensor import Operand, tensor
from .bits import polynomial, real, two_sum
from .coefficients import ASIN_TAIL
from .joined import fma

_PI, _PI_REST = 3.141592653589793, 1.2246467991473532e-16
_LN2 = 0.6931471805599453


def _wide(x: Operand, function: str, compute: Callable[[tensor], tensor]) -> tensor:
    """``compute`` in f64, in the float type of ``x``."""
    x = real(x, function)
    return cast_to(compute(cast_to(x, F64)), x.dtype)


def _one(x: tensor) -> tensor:
    return constant(1.0, F64, x.shape)


def _turns(x: tensor) -> tuple[tensor, tensor, tensor, tensor]:
    """(r, q, s, c): x is r + q / 2 modulo 2, exactly, |r| <= 1/4; s and c are sine and cosine of pi r."""
    n = rint(2.0 * where(isinf(x), 0.0, x))
    r = fma(n, -0.5, x)
    q = n - 4.0 * floor(0.25 * n)
    z = fma(r, _PI, -0.0)
    rest = fma(r, _PI, -z) + r * _PI_REST
    s, c = sin(z), cos(z)
    return r, q, fma(c, rest, s), fma(s, -rest, c)


@builtin
def sinpi(x: Operand) -> tensor:
    """sin(pi x), exact at multiples of 1/2: 0 with the sign of x at integers. In the float type of ``x``."""

    def compute(x: tensor) -> tensor:
        r, q, s, c = _turns(x)
        made = where((q == 0) | (q == 2), s, c)
        made = where(q >= 2, -made, made)
        return where((r == 0) & ((q == 0) | (q == 2)), copysign(made * 0.0, x), made)

    return _wide(x, "sinpi", compute)


@builtin
def cospi(x: Operand) -> tensor:
    """cos(pi x), exact at multiples of 1/2: +0 between integers. In the float type of ``x``."""

    def compute(x: tensor) -> tensor:
        r, q, s, c = _turns(x)
        made = where((q == 0) | (q == 2), c, s)
        made = where((q == 1) | (q == 2), -made, made)
        return where((r == 0) & ((q == 1) | (q == 3)), 0.0, made)

    return _wide(x, "cospi", compute)


@builtin
def tan(x: Operand) -> tensor:
    """Tangent of radians in the float type of ``x`` (integers: f32)."""
    return _wide(x, "tan", lambda x: where(x == 0, x, div_rn(sin(x), cos(x))))


def _arc(x: tensor) -> tuple[tensor, tensor]:
    """(asin(x) - x) / x and x**2 of |x| <= 1/2."""
    z = x * x
    return z * polynomial(z, ASIN_TAIL), z


def _half_angle(a: tensor) -> tuple[tensor, tensor]:
    """asin(sqrt((1 - a) / 2)) of a in [1/2, 1] as a number and what is left; acos(a) is twice that."""
    w = 0.5 * (1.0 - a)
    s = sqrt_rn(w)
    rest = where(s == 0, 0.0, div_rn(fma(-s, s, w), 2.0 * s))
    return s, fma(s, w * polynomial(w, ASIN_TAIL), rest)


def _difference(high: float, low: float, x: tensor, rest: tensor) -> tensor:
    """(high + low) - (x + rest)."""
    total, error = two_sum(constant(high, F64, x.shape), -x)
    return total + (error + (low - rest))


@builtin
def asin(x: Operand) -> tensor:
    """Arc sine in [-pi/2, pi/2], NaN outside [-1, 1], in the float type of ``x`` (integers: f32)."""

    def compute(x: tensor) -> tensor:
        a = abs(x)
        ratio, _ = _arc(x)
        s, rest = _half_angle(a)
        far = _difference(_PI / 2, _PI_REST / 2, 2.0 * s, 2.0 * rest)
        return where(x == 0, x, where(a <= 0.5, fma(x, ratio, x), copysign(far, x)))

    return _wide(x, "asin", compute)


@builtin
def acos(x: Operand) -> tensor:
    """Arc cosine in [0, pi], NaN outside [-1, 1], in the float type of ``x`` (integers: f32)."""

    def compute(x: tensor) -> tensor:
        ratio, _ = _arc(x)
        s, rest = _half_angle(abs(x))
        near = _difference(_PI / 2, _PI_REST / 2, x, x * ratio)
        left = _difference(_PI, _PI_REST, 2.0 * s, 2.0 * rest)
        return where(abs(x) <= 0.5, near, where(x > 0, 2.0 * (s + rest), left))

    return _wide(x, "acos", compute)


def _log1p(v: tensor, rest: tensor) -> tensor:
    """log(1 + v + rest), of a rest far below v."""
    u, lost = two_sum(_one(v), v)
    return log(u) + div_rn(lost + rest, u)


@builtin
def asinh(x: Operand) -> tensor:
    """Inverse hyperbolic sine in the float type of ``x`` (integers: f32)."""

    def compute(x: tensor) -> tensor:
        a = abs(x)
        square = a * a
        v, rest = two_sum(a, div_rn(square, 1.0 + sqrt_rn(1.0 + square)))
        made = where(a > 1e9, log(a) + _LN2, _log1p(v, rest))
        return where((x == 0) | isinf(x), x, copysign(made, x))

    return _wide(x, "asinh", compute)


@builtin
def acosh(x: Operand) -> tensor:
    """Inverse hyperbolic cosine, NaN below 1, in the float type of ``x`` (integers: f32)."""

    def compute(x: tensor) -> tensor:
        t = x - 1.0
        v, rest = two_sum(t, sqrt_rn(fma(t, t, 2.0 * t)))
        made = where(x > 1e9, log(x) + _LN2, _log1p(v, rest))
        return where(x < 1, float("nan"), where(x == 1, 0.0, made))

    return _wide(x, "acosh", compute)


@builtin
def atanh(x: Operand) -> tensor:
    """Inverse hyperbolic tangent, infinite at 1 and -1, NaN beyond, in the float type of ``x`` (integers: f32)."""

    def compute(x: tensor) -> tensor:
        a = abs(x)
        below = where(a < 1, a, 0.0)
        d, lost = two_sum(_one(a), -below)
        q = div_rn(2.0 * below, d)
        made = 0.5 * _log1p(q, div_rn(fma(-q, d, 2.0 * below) - q * lost, d))
        made = where(a == 1, float("inf"), where(a < 1, made, float("nan")))
        return where(x == 0, x, copysign(made, x))

    return _wide(x, "atanh", compute)


__all__ = ["acos", "acosh", "asin", "asinh", "atanh", "cospi", "sinpi", "tan"]
