"""The logarithm of the gamma function in f32, in few instructions and without branches.

Up to 3 it is (x - 1) (x - 2) times a polynomial, whose zeros at 1 and 2 are exact, below 1 less log(x); from 3 on
Stirling's formula. Of negative numbers the reflection formula takes another logarithm.
"""

from __future__ import annotations

import math

from ...ir.types import F32
from ..arithmetic import cast_to
from ..conditions import where
from ..maths import abs, rint
from ..tensor import tensor
from .bits import polynomial, reciprocal, sum_rn
from .coefficients import LOG_GAMMA_REST_F32, LOG_GAMMA_SLOPE_F32, SCALED_SINE_OF_TURNS_F32
from .joined import fma, maximum, minimum
from .logarithm import LN2_OF_STEPS, decomposed, log_of_normal, log_of_one_and

#: Where Stirling's formula begins.
_FAR = 3.0
#: Numbers of which there is a logarithm are multiplied by 2 to this power, which makes denormals normal.
_LIFTED = 64
_CONSTANT = math.log(2 * math.pi) / 2 - 0.5


def _stirling(a: tensor) -> tensor:
    """log(gamma(a)) of ``a`` from 3 on: (a - 1/2) (log(a) - 1), a constant, and what is small."""
    k, f = decomposed(a)
    logarithm = sum_rn(fma(cast_to(k, F32), LN2_OF_STEPS, -1.0), log_of_one_and(f))
    inverse = reciprocal(a)
    rest = fma(inverse, polynomial(inverse * inverse, LOG_GAMMA_REST_F32), _CONSTANT)
    return fma(sum_rn(a, -0.5), logarithm, rest)


def _between_zeros(a: tensor) -> tensor:
    """log(gamma(a)) of ``a`` from 1 to 3, of smaller ones log(gamma(1 + a))."""
    t = where(a < 1.0, a, a - 1.0)
    return fma(t, t, -t) * polynomial(t - 1.0, LOG_GAMMA_SLOPE_F32)


def log_gamma_of_f32(x: tensor) -> tensor:
    """log(abs(gamma(x))). With a = |x| that of a negative number is log(pi / (a |sin(pi a)|)) less that of ``a``; its
    logarithm and the one of small numbers are one."""
    a, negative = abs(x), x < 0.0
    r = a - rint(a)
    sine = fma(r, polynomial(r * r, SCALED_SINE_OF_TURNS_F32), -0.0)
    logarithmed = where(negative, abs(sine) * maximum(a, 1.0), minimum(a, 1.0) * 2.0**_LIFTED)
    above = where(a < _FAR, _between_zeros(a), _stirling(a))
    made = where(negative, -above, above) - log_of_normal(logarithmed, _LIFTED)
    return where(logarithmed > 0.0, made, float("inf"))
