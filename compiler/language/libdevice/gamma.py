"""The gamma function and its logarithm, in f64; narrower types are computed in f64.

From 1 to 2 gamma is a polynomial, which recurrence carries up to 6 and down to -1/2; from 6 on it is Stirling's formula
with a polynomial in 1/x. The logarithm has zeros at 1 and 2: beside them it is a polynomial times the distance, which
is exact. Below -1/2 both come from the reflection formula.
"""

from __future__ import annotations

import math

from ...ir.types import F64
from ..arithmetic import cast_to, where
from ..builtin import builtin
from ..maths import abs, div_rn, exp_rn, floor, fma, log, maximum, minimum, pow
from ..tensor import Operand, tensor
from .bits import polynomial, real
from .gamma_coefficients import GAMMA, LOG_AT_1, LOG_AT_2, LOG_STIRLING, STIRLING
from .trigonometry import sinpi

#: Where Stirling's formula begins.
_FAR, _LOG_FAR = 6.0, 4.0
#: Gamma of it is far beyond what f64 holds.
_BEYOND = 200.0
_ROOT_TWO_PI = math.sqrt(2 * math.pi)
#: What Stirling's formula adds to (x - 1/2) (log x - 1).
_STIRLING_CONSTANT = (math.log(2 * math.pi) - 1) / 2


def _near(x: tensor) -> tensor:
    """Gamma of ``x`` from -1/2 to 6."""
    y, product = x, where(x == x, 1.0, x)
    for _ in range(4):
        lower, above = y - 1.0, y >= 2.0
        product, y = where(above, product * lower, product), where(above, lower, y)
    between = where(y < 0, y + 2.0, where(y < 1, y + 1.0, y))
    divisor = where(y < 0, fma(y, y, y), where(y < 1, y, 1.0))
    return div_rn(product * polynomial(fma(between, 2.0, -3.0), GAMMA), divisor)


def _factors(a: tensor) -> tuple[tensor, tensor]:
    """Two numbers whose product is gamma of ``a`` >= -1/2, which may be beyond f64 while neither of them is."""
    x = minimum(maximum(a, _FAR), _BEYOND)
    half = pow(x, fma(x, 0.5, -0.25))
    far = half * (exp_rn(-x) * (polynomial(div_rn(12.0, x) - 1.0, STIRLING) * _ROOT_TWO_PI))
    return where(a < _FAR, _near(minimum(a, _FAR)), far), where(a < _FAR, 1.0, half)


def _gamma(x: tensor) -> tensor:
    a = abs(x)
    one, other = _factors(where(x < -0.5, a, x))
    reflected = div_rn(div_rn(div_rn(-math.pi, x * sinpi(x)), one), other)
    made = where(x < -0.5, where(x == floor(x), float("nan"), reflected), one * other)
    return where(x == float("inf"), x, where(x == x, made, x))


def _log_above(a: tensor) -> tensor:
    """log(gamma(a)) of ``a`` >= 1/2."""
    at_1 = minimum(a, 1.5) - 1.0
    middle = minimum(maximum(a, 1.5), _LOG_FAR)
    at_2 = middle - where(middle < 3, 2.0, 3.0)
    by_2 = at_2 * polynomial(fma(at_2, 4 / 3, -1 / 3), LOG_AT_2) + log(where(middle < 3, 1.0, middle - 1.0))
    x = maximum(a, _LOG_FAR)
    inverse = div_rn(1.0, x)
    rest = fma(inverse, polynomial(fma(inverse * inverse, 32.0, -1.0), LOG_STIRLING), _STIRLING_CONSTANT)
    far = fma(x - 0.5, log(x) - 1.0, rest)
    return where(a < 1.5, at_1 * polynomial(at_1 * 2.0, LOG_AT_1), where(a < _LOG_FAR, by_2, far))


def _log_gamma(x: tensor) -> tensor:
    a = abs(x)
    small = maximum(minimum(x, 0.5), -0.5)
    by_zero = small * polynomial(small * 2.0, LOG_AT_1) - log(abs(small))
    above = _log_above(maximum(a, 0.5))
    reflected = log(div_rn(math.pi, a * abs(sinpi(x)))) - above
    made = where(a < 0.5, by_zero, where(x < 0, reflected, above))
    poles = ((x <= 0) & (x == floor(x))) | (a == float("inf"))
    return where(poles, float("inf"), where(x == x, made, x))


@builtin
def tgamma(x: Operand) -> tensor:
    """The gamma function, in the float type of ``x`` (integers: f32): infinite with the sign of ``x`` at 0, NaN at
    negative integers and -inf."""
    x = real(x, "tgamma")
    return cast_to(_gamma(cast_to(x, F64)), x.dtype)


@builtin
def lgamma(x: Operand) -> tensor:
    """The logarithm of the absolute value of the gamma function, in the float type of ``x`` (integers: f32): infinite
    at 0, at negative integers and at both infinities."""
    x = real(x, "lgamma")
    return cast_to(_log_gamma(cast_to(x, F64)), x.dtype)


__all__ = ["lgamma", "tgamma"]
