"""The complementary error function and the normal distribution. erfcx is computed in f64, of all others f32 in f32.

From 1/2 on all of f64 come from (1/2 + x) exp(x**2) erfc(x), a polynomial in (x - 4) / (x + 4), below from erf, where
that polynomial would cancel; all of f32 come from (1 + x/2) exp(x**2) erfc(x), one in 1 / (1 + x/2). Of x**2 the
rounding error is kept.
"""

from __future__ import annotations

from ...ir.types import F32, F64
from ..arithmetic import cast_to, constant
from ..builtin import builtin
from ..conditions import where
from ..maths import abs, div_rn, erf, exp2, exp_rn, isinf
from ..tensor import Operand, tensor
from .bits import bits_of, by_type, polynomial, real, reciprocal, reinterpret, sum_rn
from .coefficients import ERFCX_F32, SCALED_ERFCX
from .joined import clamp, fma, minimum

# 1/sqrt(2) and what it lacks, as f64 and f32.
_ROOT_HALF, _ROOT_HALF_REST = 0.7071067811865476, -4.833646656726457e-17
_ROOT_HALF_F32, _ROOT_HALF_F32_REST = 0.7071067690849304, 1.2101617152815436e-08
#: log2(e) as f32 and what it lacks.
_LOG2_E, _LOG2_E_REST = 1.4426950216293335, 1.9259629911266175e-08
#: Added to a f32 it leaves an integer in the lowest bits, with the exponents' bias and 100 beyond.
_ROUNDING = float((3 << 22) + 127 + 100)
#: From here on erfc is 0 in f32.
_LAST = 10.2


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


def _power(x: tensor, rest: tensor) -> tuple[tensor, tensor]:
    """(p, q) with exp(-(x + rest)) = p q / 2**100 of f32, x from 0 to 105: p is about 1, and q a power of two."""
    shifted = fma(x, -_LOG2_E, _ROUNDING)
    n = sum_rn(shifted, -_ROUNDING)
    small = fma(x, -_LOG2_E_REST, fma(rest, -_LOG2_E, -0.0))
    return exp2(sum_rn(fma(x, -_LOG2_E, -n), small)), reinterpret(bits_of(shifted) << 23, F32)


def _erfcx_of_f32(a: tensor) -> tensor:
    """exp(a**2) erfc(a) of f32, a from 0 to 10.2: a quotient of two sums, with what these are rounded by."""
    half = fma(a, 0.5, -0.0)
    below = sum_rn(half, 1.0)
    below_lost = sum_rn(half, -sum_rn(below, -1.0))
    guess = reciprocal(below)
    inverse = fma(guess, fma(-guess, below_lost, fma(-guess, below, 1.0)), guess)
    t = fma(-half, inverse, 0.5)
    first, *others = ERFCX_F32
    slope = polynomial(t, tuple(others))
    above = fma(slope, t, first)
    above_lost = fma(slope, t, sum_rn(first, -above))
    made = fma(above, inverse, -0.0)
    left = fma(-made, below_lost, sum_rn(fma(-made, below, above), above_lost))
    return fma(inverse, left, made)


def _erfc_of_f32(x: tensor, rest: tensor | None = None) -> tensor:
    """erfc(x + rest) of f32, of a rest far below x."""
    a = clamp(abs(x), 0.0, _LAST)
    square = fma(a, a, -0.0)
    lost = fma(a, a, -square)
    if rest is not None:
        lost = fma(fma(a, rest, -0.0), where(x < 0, -2.0, 2.0), lost)
    power, steps = _power(square, lost)
    made = fma(fma(fma(power, _erfcx_of_f32(a), -0.0), steps, -0.0), 2.0**-100, -0.0)
    return where(x < 0, 2.0 - made, made)


@builtin
def erfc(x: Operand) -> tensor:
    """1 - erf(x), accurate where it is small, in the float type of ``x`` (integers: f32)."""

    return by_type(x, "erfc", _erfc_of_f32, lambda x: _erfc(x, constant(0.0, F64, x.shape)))


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
