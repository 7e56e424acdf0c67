"""log(x) of f32 that is known to be positive and no denormal, in parts that others put together."""

from __future__ import annotations

from ...ir.types import F32
from ..arithmetic import cast_to
from ..tensor import tensor
from .bits import bits_of, polynomial, reinterpret, sum_rn
from .coefficients import LOG1P_TAIL_F32
from .joined import fma

#: ln 2 to be multiplied by what :func:`decomposed` makes.
LN2_OF_STEPS = 0.6931471805599453 * 2.0**-23


def decomposed(x: tensor) -> tuple[tensor, tensor]:
    """(k, f) with x = 2**(k / 2**23) (1 + f), f from -1/4 to 1/2; k is an int32, a multiple of 2**23."""
    k = (bits_of(x) - 0x3F400000) & -0x800000
    return k, sum_rn(reinterpret(bits_of(x) - k, F32), -1.0)


def log_of_one_and(f: tensor) -> tensor:
    """log(1 + f) of f from -1/4 to 1/2."""
    return fma(fma(f, f, -0.0), polynomial(f, (-0.5, *LOG1P_TAIL_F32)), f)


def log_of_normal(x: tensor, lifted: int = 0) -> tensor:
    """log(x / 2**lifted)."""
    k, f = decomposed(x)
    return fma(cast_to(k - (lifted << 23), F32), LN2_OF_STEPS, log_of_one_and(f))
