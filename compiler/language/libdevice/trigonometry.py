"""Circular functions and their inverses. Of sinpi and cospi f32 is computed in f64, of tan, asin and acos in f32.

Where a step would cost accuracy of f64, its error is kept and added in the end.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.types import F64
from ...tile import elementwise as ew
from ..arithmetic import cast_to, constant
from ..builtin import builtin
from ..conditions import where
from ..maths import abs, copysign, cos, div_rn, floor, isinf, rint, sin, sqrt_rn
from ..tensor import Operand, emit, tensor
from .bits import by_type, polynomial, real, sum_rn, two_sum, with_sign_of
from .coefficients import ASIN_TAIL, ASIN_TAIL_F32
from .joined import fma

_PI, _PI_REST = 3.141592653589793, 1.2246467991473532e-16
#: From here on every f64 is an even integer.
_EVEN = 2.0**53


def _wide(x: Operand, function: str, compute: Callable[[tensor], tensor]) -> tensor:
    """``compute`` in f64, in the float type of ``x``."""
    x = real(x, function)
    return cast_to(compute(cast_to(x, F64)), x.dtype)


def _one(x: tensor) -> tensor:
    return constant(1.0, F64, x.shape)


def _turns(x: tensor) -> tuple[tensor, tensor, tensor, tensor]:
    """(r, q, s, c): x is r + q / 2 modulo 2, exactly, |r| <= 1/4; s and c are sine and cosine of pi r."""
    x = where((abs(x) >= _EVEN) & ~isinf(x), 0.0, x)  # twice the largest numbers would be infinite
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
    return emit(ew.Tan(real(x, "tan").value))


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


def _arc_of_f32(x: tensor) -> tuple[tensor, tensor, tensor]:
    """asin(y) of f32 as a sum of two, y first, and whether |x| > 1/2: y is |x|, but sqrt((1 - |x|) / 2) where that is
    so, whose arc sine is half of acos(|x|)."""
    a = abs(x)
    beyond = a > 0.5
    z = where(beyond, fma(a, -0.5, 0.5), fma(a, a, -0.0))
    y = where(beyond, sqrt_rn(z), a)
    return y, fma(y, fma(z, polynomial(z, ASIN_TAIL_F32), -0.0), -0.0), beyond


@builtin
def asin(x: Operand) -> tensor:
    """Arc sine in [-pi/2, pi/2], NaN outside [-1, 1], in the float type of ``x`` (integers: f32)."""

    def compute(x: tensor) -> tensor:
        a = abs(x)
        ratio, _ = _arc(x)
        s, rest = _half_angle(a)
        far = _difference(_PI / 2, _PI_REST / 2, 2.0 * s, 2.0 * rest)
        return where(x == 0, x, where(a <= 0.5, fma(x, ratio, x), copysign(far, x)))

    def single(x: tensor) -> tensor:
        y, tail, beyond = _arc_of_f32(x)
        far = sum_rn(
            fma(y, -2.0, 1.5), fma(tail, -2.0, _PI / 2 - 1.5)
        )  # the first is exact where the result is below 1
        return with_sign_of(where(beyond, far, sum_rn(y, tail)), x)

    return by_type(x, "asin", single, compute)


@builtin
def acos(x: Operand) -> tensor:
    """Arc cosine in [0, pi], NaN outside [-1, 1], in the float type of ``x`` (integers: f32)."""

    def compute(x: tensor) -> tensor:
        ratio, _ = _arc(x)
        s, rest = _half_angle(abs(x))
        near = _difference(_PI / 2, _PI_REST / 2, x, x * ratio)
        left = _difference(_PI, _PI_REST, 2.0 * s, 2.0 * rest)
        return where(abs(x) <= 0.5, near, where(x > 0, 2.0 * (s + rest), left))

    def single(x: tensor) -> tensor:
        y, tail, beyond = _arc_of_f32(x)
        arc = sum_rn(y, tail)
        near = sum_rn(-with_sign_of(arc, x), _PI / 2)
        return where(beyond, where(x < 0, fma(arc, -2.0, _PI), 2.0 * arc), near)

    return by_type(x, "acos", single, compute)


__all__ = ["acos", "asin", "cospi", "sinpi", "tan"]
