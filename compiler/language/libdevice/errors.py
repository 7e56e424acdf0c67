"""The complementary error function and the normal distribution, of f64; narrower types are computed in f64.

From 1/2 on all come from (1/2 + x) exp(x**2) erfc(x), a polynomial in (x - 4) / (x + 4), below from erf, where that
polynomial would cancel. Of x**2 the rounding error is kept.
"""

from __future__ import annotations

from ...ir.types import F64
from ..arithmetic import cast_to, constant, where
from ..builtin import builtin
from ..maths import abs, div_rn, erf, exp_rn, isinf
from ..tensor import Operand, tensor
from .bits import polynomial, real, sum_rn
from .coefficients import SCALED_ERFCX
from .joined import fma, minimum

# 1/sqrt(2) and what it lacks.
_ROOT_HALF, _ROOT_HALF_REST = 0.7071067811865476, -4.833646656726457e-17


def _erfcx(a: tensor) -> tensor:
    """exp(a**2) erfc(a) of a >= 0."""
    finite = where(isinf(a), 0.0, a)
    scaled = polynomial(div_rn(finite - 4.0, finite + 4.0), SCALED_ERFCX)
    return where(isinf(a), 0.0, div_rn(scaled, 0.5 + finite))


def _square(a: tensor) -> tuple[tensor, tensor]:
    """a**2 and what it lacks; 0 is lacking where the square is huge."""
    square = fma(a, a, -0.0)
    return square, where(square < 1e6, fma(a, a, -square), 0.0)


def _erfc(x: tensor, rest: tensor) -> tensor:
    """erfc(x + rest), of a rest far below x."""
    a = abs(x)
    square, lost = _square(a)
    lost = lost + where(x < 0, -2.0, 2.0) * a * rest
    # exp of less than -708 is denormal and would lose bits: half of the exponent is multiplied twice.
    half = exp_rn(-0.5 * minimum(square, 1600.0))
    full = exp_rn(-square)
    scaled = _erfcx(a)
    scaled = scaled - scaled * where(square < 1600.0, lost, 0.0)
    made = where(square < 690.0, full * scaled, (half * scaled) * half)
    return where(a < 0.5, 1.0 - erf(x), where(x < 0, 2.0 - made, made))


@builtin
def erfc(x: Operand) -> tensor:
    """1 - erf(x), accurate where it is small, in the float type of ``x`` (integers: f32)."""
    x = real(x, "erfc")
    wide = cast_to(x, F64)
    return cast_to(_erfc(wide, constant(0.0, F64, x.shape)), x.dtype)


@builtin
def erfcx(x: Operand) -> tensor:
    """exp(x**2) erfc(x), in the float type of ``x`` (integers: f32); inf below about -26.6 (f32: -9.4)."""
    x = real(x, "erfcx")
    wide = cast_to(x, F64)
    scaled = _erfcx(abs(wide))
    square, lost = _square(wide)
    e = exp_rn(square)
    scaled = where(abs(wide) < 0.5, e * (1.0 - erf(abs(wide))), scaled)
    left = where(isinf(e), e, 2.0 * fma(e, lost, e) - scaled)
    return cast_to(where(wide < 0, left, scaled), x.dtype)


@builtin
def normcdf(x: Operand) -> tensor:
    """The distribution function of the standard normal distribution, in the float type of ``x`` (integers: f32)."""
    x = real(x, "normcdf")
    wide = cast_to(x, F64)
    z = fma(wide, -_ROOT_HALF, -0.0)
    rest = where(abs(wide) < 1e3, sum_rn(fma(wide, -_ROOT_HALF, -z), wide * -_ROOT_HALF_REST), 0.0)
    return cast_to(0.5 * _erfc(z, rest), x.dtype)


__all__ = ["erfc", "erfcx", "normcdf"]
