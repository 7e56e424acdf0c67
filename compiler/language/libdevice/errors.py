"""The complementary error function and the normal distribution. erfcx is computed in f64, of all others f32 in f32.

From 1/2 on all come from (1/2 + x) exp(x**2) erfc(x), a polynomial in (x - 4) / (x + 4), below from erf, where that
polynomial would cancel. Of x**2 the rounding error is kept.
"""

from __future__ import annotations

from ...ir.types import F64
from ..arithmetic import cast_to, constant, where
from ..builtin import builtin
from ..maths import abs, div_rn, erf, exp_rn, exp_within_two, fdiv, isinf
from ..tensor import Operand, tensor
from .bits import by_type, polynomial, real, sum_rn
from .coefficients import ERF_RATIO_F32, SCALED_ERFCX, SCALED_ERFCX_F32
from .joined import fma, minimum

# 1/sqrt(2) and what it lacks, as f64 and f32.
_ROOT_HALF, _ROOT_HALF_REST = 0.7071067811865476, -4.833646656726457e-17
_ROOT_HALF_F32, _ROOT_HALF_F32_REST = 0.7071067690849304, 1.2101617152815436e-08


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


def _erfc_of_f32(x: tensor, rest: tensor) -> tensor:
    """erfc(x + rest) of f32, of a rest far below x."""
    a = minimum(abs(x), 15.0)  # beyond, the result is 0
    square = fma(a, a, -0.0)
    lost = fma(a * rest, where(x < 0, -2.0, 2.0), fma(a, a, -square))
    above = polynomial(fdiv(a - 4.0, a + 4.0), SCALED_ERFCX_F32)
    below = sum_rn(a, 0.5)
    inverse = fdiv(1.0, below)
    scaled = fma(above, inverse, -0.0)
    left = fma(-scaled, sum_rn(a, -sum_rn(below, -0.5)), fma(-scaled, below, above))
    made = exp_within_two(-square) * sum_rn(scaled, fma(scaled, -lost, fma(inverse, left, -0.0)))
    near = sum_rn(fma(x, -polynomial(x * x, ERF_RATIO_F32), -(x + rest)), 1.0)
    return where(a < 0.5, near, where(x < 0, 2.0 - made, where(x == x, made, x)))


@builtin
def erfc(x: Operand) -> tensor:
    """1 - erf(x), accurate where it is small, in the float type of ``x`` (integers: f32)."""

    def zero(x: tensor) -> tensor:
        return constant(0.0, x.dtype, x.shape)

    return by_type(x, "erfc", lambda x: _erfc_of_f32(x, zero(x)), lambda x: _erfc(x, zero(x)))


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

    def single(x: tensor) -> tensor:
        z = fma(x, -_ROOT_HALF_F32, -0.0)
        rest = fma(x, -_ROOT_HALF_F32_REST, fma(x, -_ROOT_HALF_F32, -z))
        return 0.5 * _erfc_of_f32(z, where(abs(x) < 1e3, rest, 0.0))

    def double(x: tensor) -> tensor:
        z = fma(x, -_ROOT_HALF, -0.0)
        rest = where(abs(x) < 1e3, sum_rn(fma(x, -_ROOT_HALF, -z), x * -_ROOT_HALF_REST), 0.0)
        return 0.5 * _erfc(z, rest)

    return by_type(x, "normcdf", single, double)


__all__ = ["erfc", "erfcx", "normcdf"]
