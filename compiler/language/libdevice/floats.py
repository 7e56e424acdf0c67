"""Neighbours, exponents and remainders of floats: everything here is exact, or rounded once."""

from __future__ import annotations

from ...ir.types import F32, F64, I32, I64
from ..arithmetic import cast_to, meet, mod
from ..builtin import builtin
from ..conditions import where
from ..maths import abs, isinf, isnan
from ..tensor import Operand, tensor
from .bits import bits_of, given, is_finite, next_down, next_up, power_of_two, real, split
from .joined import maximum, minimum


def _pair(x: Operand, y: Operand, function: str) -> tuple[tensor, tensor]:
    a, b = meet(x, y)
    a, b = real(a, function), real(b, function)
    return a, b


@builtin
def signbit(x: Operand) -> tensor:
    """1 where the sign bit is set (that of -0 and NaN, too), else 0: int32 in the shape of ``x``."""
    return cast_to(bits_of(real(x, "signbit")) < 0, I32)


@builtin
def nextafter(x: Operand, y: Operand) -> tensor:
    """The number next to x towards y, y where they are equal; in the common float type (integers: f32)."""
    a, b = _pair(x, y, "nextafter")
    step = where(a < b, next_up(a), next_down(a))
    return where(isnan(a) | isnan(b), a + b, where(a == b, b, step))


@builtin
def fdim(x: Operand, y: Operand) -> tensor:
    """x - y where x > y, else 0, NaN of NaN; in the common float type (integers: f32)."""
    a, b = _pair(x, y, "fdim")
    return where(a <= b, 0.0, a - b)


@builtin
def saturatef(x: Operand) -> tensor:
    """f32 ``x`` held in [0, 1]; 0 for NaN. Raises TypeMismatch for f64."""
    x = given(x, F32, "saturatef")
    return where(x > 0, where(x < 1, x, 1.0), 0.0)


@builtin
def ilogb(x: Operand) -> tensor:
    """The exponent e of |x| = m * 2**e with m in [1, 2), as int32: the least one for 0 and NaN, the largest for inf."""
    x = real(x, "ilogb")
    exponent = cast_to(split(cast_to(x, F64))[1], I32)
    special = where(isinf(x), 0x7FFFFFFF, -0x80000000)
    return where(is_finite(x) & (x != 0), exponent, special)


@builtin
def logb(x: Operand) -> tensor:
    """As :func:`ilogb`, in the float type of ``x``: -inf for 0, inf for either infinity, NaN for NaN."""
    x = real(x, "logb")
    exponent = cast_to(split(cast_to(x, F64))[1], x.dtype)
    return where(x == 0, float("-inf"), where(is_finite(x), exponent, x * x))


@builtin
def ldexp(x: Operand, n: Operand) -> tensor:
    """x * 2**n rounded once, in the float type of ``x`` (integers: f32); ``n`` is int32, else TypeMismatch."""
    x = real(x, "ldexp")
    m, e = split(cast_to(x, F64))
    e = e + cast_to(given(n, I32, "ldexp"), I64)
    inner = minimum(maximum(e, -1022), 1023)
    rest = minimum(maximum(e - inner, -200), 200)
    scaled = m * power_of_two(inner) * power_of_two(rest)  # the first product is exact
    return where(is_finite(x), cast_to(scaled, x.dtype), x)


scalbn = ldexp


@builtin
def remainder(x: Operand, y: Operand) -> tensor:
    """x - n y, exactly, with n the integer nearest to x / y, ties to even; in the common float type (integers: f32).

    A 0 has the sign of x. NaN where x is infinite or y is 0.
    """
    a, b = _pair(x, y, "remainder")
    type = a.dtype
    p = abs(b)
    r = cast_to(mod(abs(a), p + p), type)
    p = where(isnan(a) | isnan(b), a + b, p)
    # Below 1 twice r does not overflow, above it half of p is exact.
    small = p < 1
    over = where(small, r + r > p, r > 0.5 * p)
    less = r - p
    again = over & where(small, less + less >= p, less >= 0.5 * p)
    r = where(again, less - p, where(over, less, r))
    r = where(isnan(p) | (p == 0) | isinf(a), float("nan"), r)
    return where(bits_of(a) < 0, -r, r)


__all__ = ["fdim", "ilogb", "ldexp", "logb", "nextafter", "remainder", "saturatef", "scalbn", "signbit"]
