"""Inverses of the error function and of the normal distribution, in f64; narrower types are computed in f64, of
erfinv in f32.

A first guess (Winitzki's formula) is mended by Newton's rule on the logarithm of erfc, which is nearly a parabola, in
the tails; between them, where |erf| is below 1/2, two terms of the series are mended by Halley's rule on erf.
"""

from __future__ import annotations

import math

from ...ir.types import F64
from ..arithmetic import bit_and, cast_to
from ..builtin import builtin
from ..conditions import where
from ..maths import abs, copysign, div_rn, erf, exp_rn, log, sqrt
from ..tensor import Operand, tensor
from .bits import bits_of, by_type, polynomial, real, reinterpret, sum_rn
from .coefficients import ERFINV_CENTER_F32, ERFINV_TAIL_F32
from .errors import _erfcx
from .joined import fma, maximum, minimum
from .logarithm import log_of_normal

_HALF_ROOT_PI = math.sqrt(math.pi) / 2
#: The constant of Winitzki's formula.
_WINITZKI = 0.147
# sqrt(2) and what it lacks.
_ROOT, _ROOT_REST = 1.4142135623730951, -9.667293313452913e-17


def _guess(tail: tensor) -> tensor:
    """erfc of the result is about ``tail``, from 0 to 1."""
    logarithm = log(tail) + log(2.0 - tail)
    middle = 2 / (math.pi * _WINITZKI) + 0.5 * logarithm
    return sqrt(maximum(sqrt(fma(middle, middle, logarithm * (-1 / _WINITZKI))) - middle, 0.0))


def _inner(a: tensor) -> tensor:
    """erf of the result is ``a``, from 0 to 1/2."""
    x = a * fma(a * a, _HALF_ROOT_PI * math.pi / 12, _HALF_ROOT_PI)
    for _ in range(3):
        step = (erf(x) - a) * (_HALF_ROOT_PI * exp_rn(x * x))
        x = x - div_rn(step, fma(x, step, 1.0))
    return x


def _outer(tail: tensor) -> tensor:
    """erfc of the result is ``tail``, from 0 to 1/2."""
    x, logarithm = _guess(tail), log(tail)
    for _ in range(4):
        scaled = _erfcx(x)
        x = x + (log(scaled) - logarithm - x * x) * (scaled * _HALF_ROOT_PI)
    return x


def _inverse(inner: tensor, tail: tensor) -> tensor:
    """The x >= 0 with erf(x) = ``inner`` and erfc(x) = ``tail``, of which the smaller one counts."""
    made = where(inner < 0.5, _inner(minimum(inner, 0.5)), _outer(minimum(maximum(tail, 5e-324), 0.5)))
    return where(tail == 0, float("inf"), where(tail > 0, made, float("nan")))


def _erfinv_of_f32(x: tensor) -> tensor:
    """x / 2 and x times a polynomial of w = -log(1 - x**2), another one in the tails (Giles, "Approximating the erfinv
    function", GPU Computing Gems, 2011): what the polynomial is rounded by counts for less beside the half."""
    w = -log_of_normal(fma(x, -x, 1.0))
    center = polynomial(w - 1.0, ERFINV_CENTER_F32)
    tail = polynomial(w - 10.5, ERFINV_TAIL_F32)
    a = abs(x)
    ratio = where(a < 1.0, where(w < 4.5, center, tail), where(a == 1.0, float("inf"), float("nan")))
    return fma(x, ratio, 0.5 * x)


def _erfcinv(y: tensor) -> tensor:
    made = _inverse(abs(1.0 - y), where(y > 1, 2.0 - y, y))
    return where(y > 1, -made, made)


@builtin
def erfinv(x: Operand) -> tensor:
    """The y with erf(y) = ``x``, in the float type of ``x`` (integers: f32); NaN outside -1 to 1."""

    def double(x: tensor) -> tensor:
        return where(x == x, copysign(_inverse(abs(x), 1.0 - abs(x)), x), x)

    return by_type(x, "erfinv", _erfinv_of_f32, double)


@builtin
def erfcinv(x: Operand) -> tensor:
    """The y with erfc(y) = ``x``, in the float type of ``x`` (integers: f32); NaN outside 0 to 2."""
    x = real(x, "erfcinv")
    return cast_to(_erfcinv(cast_to(x, F64)), x.dtype)


@builtin
def normcdfinv(x: Operand) -> tensor:
    """The y with normcdf(y) = ``x``, in the float type of ``x`` (integers: f32); NaN outside 0 to 1."""
    x = real(x, "normcdfinv")
    made = _erfcinv(2.0 * cast_to(x, F64))
    rest = where(abs(made) < 1e3, made * -_ROOT_REST, 0.0)
    return cast_to(sum_rn(made * -_ROOT, rest), x.dtype)


@builtin
def rcp64h(x: Operand) -> tensor:
    """1 / x of an f64 to the 20 bits of mantissa in the upper half of an f64; the lower half is zero."""
    made = div_rn(1.0, cast_to(real(x, "rcp64h"), F64))
    return reinterpret(bit_and(bits_of(made), ~0xFFFFFFFF), F64)


__all__ = ["erfcinv", "erfinv", "normcdfinv", "rcp64h"]
