"""Bessel functions of orders 0 and 1, in f64; narrower types are computed in f64.

Up to 8, J is a polynomial in x**2 and Y another one beside its logarithm; from there both are the cosine and the sine
of x - pi/4 (order 1: 3 pi/4), multiplied by polynomials in (8 / x)**2 (Hankel's expansion). I has its power series,
whose terms are all positive, and from 8 on exp(x) / sqrt(x) times a polynomial in 8 / x. Near zeros of J and Y the
error is small beside 1 and not beside the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...ir.types import F64
from ..arithmetic import cast_to
from ..builtin import builtin
from ..conditions import where
from ..maths import abs, copysign, cos, div_rn, exp_rn, isinf, log, sin, sqrt
from ..tensor import Operand, tensor
from .bessel_coefficients import (
    I0_FAR,
    I1_FAR,
    J0_NEAR,
    J1_NEAR,
    P0_FAR,
    P1_FAR,
    Q0_FAR,
    Q1_FAR,
    Y0_NEAR,
    Y1_NEAR,
)
from .bits import polynomial, real
from .joined import fma, maximum, minimum

#: Where the polynomials change.
_EDGE = 8.0
#: Terms of the series of I: at 8 the next one is below 1e-19 of the sum.
_TERMS = 24


def _in_f64(name: str, function: Callable[[tensor], tensor], x: Operand) -> tensor:
    x = real(x, name)
    return cast_to(function(cast_to(x, F64)), x.dtype)


def _near(a: tensor, table: Sequence[float]) -> tensor:
    """A polynomial of ``a``, at most 8, in a**2 / 32 - 1."""
    return polynomial(fma(a * a, 1 / 32, -1.0), table)


def _waves(a: tensor, cosines: Sequence[float], sines: Sequence[float], order: int, second: bool) -> tensor:
    """J (``second``: Y) of ``a``, at least 8: sqrt(2 / (pi a)) (P cos - Q sin), of Y (P sin + Q cos)."""
    t = fma(div_rn(64.0, a * a), 2.0, -1.0)
    p, q = polynomial(t, cosines), div_rn(polynomial(t, sines), a)
    c, s = cos(a), sin(a)
    # cos and sin of the shifted angle, times sqrt(2).
    shifted_c, shifted_s = (s + c, s - c) if order == 0 else (s - c, -(s + c))
    turned = p * shifted_s + q * shifted_c if second else p * shifted_c - q * shifted_s
    return div_rn(turned, sqrt(a * math.pi))


def _bounded(a: tensor) -> tensor:
    """``a`` where it is at least 8 and finite, else 8."""
    return where(isinf(a), _EDGE, maximum(a, _EDGE))


def _first(x: tensor, order: int) -> tensor:
    a = abs(x)
    small = minimum(a, _EDGE)
    if order == 0:
        near, far = _near(small, J0_NEAR), _waves(_bounded(a), P0_FAR, Q0_FAR, 0, second=False)
    else:
        near, far = small * _near(small, J1_NEAR), _waves(_bounded(a), P1_FAR, Q1_FAR, 1, second=False)
    made = where(isinf(a), 0.0, where(a > _EDGE, far, near))
    made = where(a == a, made, a)
    return where(x < 0, -made, made) if order else made


def _second(x: tensor, order: int) -> tensor:
    small, large = maximum(minimum(x, _EDGE), 0.0), _bounded(x)
    scale = 2 / math.pi
    if order == 0:
        near = fma(scale * log(small), _near(small, J0_NEAR), _near(small, Y0_NEAR))
        far = _waves(large, P0_FAR, Q0_FAR, 0, second=True)
    else:
        rest = fma(scale * log(small), _near(small, J1_NEAR), _near(small, Y1_NEAR))
        near = where(small > 0, small * rest, 0.0) - div_rn(scale, small)
        far = _waves(large, P1_FAR, Q1_FAR, 1, second=True)
    made = where(x == float("inf"), 0.0, where(x > _EDGE, far, near))
    return where(x == 0, -float("inf"), where(x > 0, made, float("nan")))


def _modified(x: tensor, order: int) -> tensor:
    a = abs(x)
    small, large = minimum(a, _EDGE), _bounded(a)
    terms = [1 / (math.factorial(k) * math.factorial(k + order) * 4**k * 2**order) for k in range(_TERMS)]
    near = polynomial(small * small, terms)
    near = small * near if order else near
    damped = div_rn(polynomial(div_rn(16.0, large) - 1.0, I1_FAR if order else I0_FAR), sqrt(large))
    half = exp_rn(0.5 * minimum(large, 1450.0))  # the whole exponential would be infinite too early
    made = where(isinf(a), a, where(a > _EDGE, half * damped * half, near))
    made = where(a == a, made, a)
    return copysign(made, x) if order else made


@builtin
def j0(x: Operand) -> tensor:
    """The Bessel function of the first kind and order 0, in the float type of ``x`` (integers: f32)."""
    return _in_f64("j0", lambda v: _first(v, 0), x)


@builtin
def j1(x: Operand) -> tensor:
    """The Bessel function of the first kind and order 1, in the float type of ``x`` (integers: f32)."""
    return _in_f64("j1", lambda v: _first(v, 1), x)


@builtin
def y0(x: Operand) -> tensor:
    """The Bessel function of the second kind and order 0, in the float type of ``x`` (integers: f32); -inf at 0, NaN
    below."""
    return _in_f64("y0", lambda v: _second(v, 0), x)


@builtin
def y1(x: Operand) -> tensor:
    """The Bessel function of the second kind and order 1, in the float type of ``x`` (integers: f32); -inf at 0, NaN
    below."""
    return _in_f64("y1", lambda v: _second(v, 1), x)


@builtin
def cyl_bessel_i0(x: Operand) -> tensor:
    """The modified Bessel function of the first kind and order 0, in the float type of ``x`` (integers: f32)."""
    return _in_f64("cyl_bessel_i0", lambda v: _modified(v, 0), x)


@builtin
def cyl_bessel_i1(x: Operand) -> tensor:
    """The modified Bessel function of the first kind and order 1, in the float type of ``x`` (integers: f32)."""
    return _in_f64("cyl_bessel_i1", lambda v: _modified(v, 1), x)


__all__ = ["cyl_bessel_i0", "cyl_bessel_i1", "j0", "j1", "y0", "y1"]
