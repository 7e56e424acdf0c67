"""The gamma function and its logarithm, in f64; of the gamma function narrower types are computed in f64, too.

From 1 to 2 gamma is a polynomial, which recurrence carries up to 6 and down to -1/2; from 6 on it is the exponential
function of Stirling's formula with a polynomial in 1/x. The logarithm has zeros at 1 and 2: beside them it is a
polynomial times the distance, which is exact. Below -1/2 both come from the reflection formula. Where a step would cost
accuracy its error is kept, so what is called a pair is a number and its rest, whose sum has twice the digits.
"""

from __future__ import annotations

import math

from ...ir.types import F64, I64
from ..arithmetic import cast_to
from ..builtin import builtin
from ..conditions import where
from ..maths import abs, copysign, div_rn, floor, log, rint
from ..tensor import Operand, tensor
from .bits import by_type, polynomial, power_of_two, real, split, sum_rn, two_sum
from .gamma_coefficients import (
    GAMMA,
    GAMMA_REST,
    LOG_AT_1,
    LOG_AT_1_REST,
    LOG_AT_2,
    LOG_AT_2_REST,
    LOG_STIRLING,
)
from .gamma_f32 import log_gamma_of_f32
from .joined import fma, maximum, minimum
from .trigonometry import sinpi

Pair = tuple[tensor, tensor]

#: Where Stirling's formula begins.
_FAR, _LOG_FAR = 6.0, 4.0
#: Gamma of it, and 1 / gamma, are far beyond what f64 holds; of _HUGE the logarithm is nearly so.
_BEYOND, _HUGE = 200.0, 1e300
_PI, _PI_REST = math.pi, 1.2246467991473532e-16
#: log(2 pi) / 2.
_CONSTANT, _CONSTANT_REST = 0.9189385332046728, -3.8782941580672414e-17
#: log 2; whole numbers up to 2^20 times the first are exact.
_LN2, _LN2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: 2 artanh(s) = 2 s + 2/3 s^3 + s^5 times these in powers of s^2; s is at most 3 - sqrt(8).
_ARTANH = tuple(2 / (2 * k + 5) for k in range(11))
_THIRDS, _THIRDS_REST = 2 / 3, 3.700743415417188e-17
#: exp(r) = 1 + r + r^2 times these in powers of r, which is at most log(2) / 2.
_EXP = tuple(1 / math.factorial(k) for k in range(2, 15))


def _product(x: tensor, y: Operand) -> Pair:
    made = fma(x, y, -0.0)
    return made, fma(x, y, -made)


def _series(x: tensor, coefficients: tuple[float, ...], rest: float) -> Pair:
    """The polynomial as a pair; ``rest``: what its first coefficient lacks."""
    first, second, *more = coefficients
    tail = polynomial(x, tuple(more))
    above = fma(x, tail, second)
    lost = fma(x, tail, sum_rn(-above, second))
    made = fma(x, above, first)
    return made, fma(x, lost, sum_rn(fma(x, above, sum_rn(-made, first)), rest))


def _quotient(x: Pair, y: Pair) -> Pair:
    made = div_rn(x[0], y[0])
    return made, div_rn(sum_rn(fma(-made, y[0], x[0]), fma(-made, y[1], x[1])), y[0])


def _log(x: tensor) -> Pair:
    """log(x) of ``x`` > 0."""
    m, e = split(x)
    upper = m > math.sqrt(2)
    m, e = where(upper, m * 0.5, m), cast_to(where(upper, e + 1, e), F64)
    s, rest = _quotient((m - 1.0, m * 0.0), two_sum(m, m * 0.0 + 1.0))
    square, square_rest = _product(s, s)
    cube, cube_rest = _product(s, square)
    third, third_rest = _product(cube, _THIRDS)
    third_rest = fma(cube, _THIRDS_REST, fma(fma(s, square_rest, cube_rest), _THIRDS, third_rest))
    tail = fma(fma(cube, square, -0.0), polynomial(square, _ARTANH), fma(fma(square, rest, rest), 2.0, third_rest))
    made, error = two_sum(fma(e, _LN2, -0.0), 2.0 * s)
    made, less = two_sum(made, third)
    return two_sum(made, sum_rn(sum_rn(error, less), fma(e, _LN2_REST, tail)))


def _stirling(x: tensor) -> Pair:
    """log(gamma(x)) of ``x`` from 4 to 1e300."""
    inverse = div_rn(1.0, x)
    series = fma(inverse, polynomial(fma(inverse * inverse, 32.0, -1.0), LOG_STIRLING), _CONSTANT_REST)
    logarithm, log_rest = _log(x)
    factor = x - 0.5
    product, rest = _product(factor, logarithm)
    made, error = two_sum(product, -x)
    made, less = two_sum(made, made * 0.0 + _CONSTANT)
    rest = fma(factor, log_rest, rest)
    return two_sum(made, sum_rn(sum_rn(sum_rn(error, less), series), rest))


def _exponential(x: Pair, shift: int = 0) -> tensor:
    """exp(x) 2^shift of a pair of magnitude under 1000."""
    n = rint(x[0] * (1 / math.log(2)))
    r, rest = two_sum(fma(n, -_LN2, x[0]), fma(n, -_LN2_REST, x[1]))
    made = 1.0 + (r + fma(fma(r, r, -0.0), polynomial(r, _EXP), rest))
    exponent = cast_to(n, I64) + shift
    half = exponent >> 1  # one power of two alone may be beyond f64
    return made * power_of_two(half) * power_of_two(exponent - half)


def _near(x: tensor) -> Pair:
    """Gamma of ``x`` from -1/2 to 6."""
    y, product = x, where(x == x, 1.0, x)
    rest = product * 0.0
    for _ in range(4):
        lower, above = y - 1.0, y >= 2.0
        made, error = _product(product, lower)
        product, rest = where(above, made, product), where(above, fma(rest, lower, error), rest)
        y = where(above, lower, y)
    between = where(y < 0, y + 2.0, where(y < 1, y + 1.0, y))
    value, lost = _series(fma(between, 2.0, -3.0), GAMMA, GAMMA_REST)
    made, error = _product(product, value)
    whole = made, fma(product, lost, fma(rest, value, error))
    below = fma(y, y, y)
    divisor = where(y < 0, below, where(y < 1, y, 1.0))
    return _quotient(whole, (divisor, where(y < 0, fma(y, y, sum_rn(y, -below)), 0.0)))


def _gamma(x: tensor) -> tensor:
    a = abs(x)
    reflects = x < -0.5
    near, lost = _near(minimum(where(reflects, a, x), _FAR))
    far, rest = _stirling(minimum(maximum(a, _FAR), _BEYOND))
    by_near = where(abs(near) == float("inf"), near, near + lost)
    above = where(where(reflects, a, x) < _FAR, by_near, _exponential((far, rest)))

    sine = sinpi(x)
    product, error = _product(x, sine)
    whole, whole_rest = _product(product, near)
    whole_rest = fma(product, lost, fma(error, near, whole_rest))
    is_near = a < _FAR
    divisor = where(is_near, whole, product), where(is_near, whole_rest, error)
    value, value_rest = _quotient((divisor[0] * 0.0 - _PI, divisor[0] * 0.0 - _PI_REST), divisor)
    small = _exponential((-far, -rest), 128)  # 1 / gamma may be beyond f64 where the quotient makes up for it
    tiny = copysign(fma(value, small, value_rest * small) * 2.0**-128, value)  # 0 is the sum of two of any signs
    reflected = where(is_near, value + value_rest, tiny)
    made = where(reflects, where(x == floor(x), float("nan"), reflected), above)
    return where(x == float("inf"), x, where(x == x, made, x))


def _sum(x: tensor, factor: Pair) -> tensor:
    """``x`` times the pair."""
    return fma(x, factor[0], x * factor[1])


def _log_above(a: tensor) -> tensor:
    """log(gamma(a)) of ``a`` >= 1/2."""
    at_1 = minimum(a, 1.5) - 1.0
    middle = minimum(maximum(a, 1.5), _LOG_FAR)
    at_2 = middle - where(middle < 3, 2.0, 3.0)
    by_2 = _sum(at_2, _series(at_2 - 0.25, LOG_AT_2, LOG_AT_2_REST)) + log(where(middle < 3, 1.0, middle - 1.0))
    made, rest = _stirling(minimum(maximum(a, _LOG_FAR), _HUGE))
    far = where(a > _HUGE, a * (log(maximum(a, 1.0)) - 1.0), made + rest)
    by_1 = _sum(at_1, _series(at_1 * 2.0, LOG_AT_1, LOG_AT_1_REST))
    return where(a < 1.5, by_1, where(a < _LOG_FAR, by_2, far))


def _log_gamma(x: tensor) -> tensor:
    a = abs(x)
    small = maximum(minimum(x, 0.5), -0.5)
    logarithm, rest = _log(abs(small))
    by_zero = (_sum(small, _series(small * 2.0, LOG_AT_1, LOG_AT_1_REST)) - rest) - logarithm
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
    return by_type(x, "lgamma", log_gamma_of_f32, _log_gamma)


__all__ = ["lgamma", "tgamma"]
