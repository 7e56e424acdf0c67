"""Euclidean norms without overflow on the way, and cube roots. f32 and narrower types are computed in f64.

Squares are summed with their errors after division by a power of two, so that a norm is off by its last roundings only.
"""

from __future__ import annotations

from ...ir.types import F32, F64
from ..arithmetic import cast_to, where
from ..builtin import builtin
from ..maths import abs, copysign, div_rn, exp2, isinf, log2, sqrt_rn
from ..tensor import Operand, tensor
from .bits import is_finite, power_of_two, real, split, two_sum
from .directed import operands
from .joined import fma, maximum, minimum


def _norm(parts: list[tensor]) -> tuple[tensor, tensor, tensor]:
    """(root, e, infinite): the norm of f64 is root * 2**e, or inf where a part is, beside NaN too."""
    parts = [abs(x) for x in parts]
    largest, infinite = parts[0], isinf(parts[0])
    for x in parts[1:]:
        largest, infinite = maximum(largest, x), infinite | isinf(x)
    e = minimum(maximum(split(largest)[1], -1000), 1000)
    scale = power_of_two(-e)
    total = rest = None
    for x in parts:
        x = x * scale
        square = fma(x, x, -0.0)
        error = fma(x, x, -square)
        if total is None:
            total, rest = square, error
        else:
            total, lost = two_sum(total, square)
            rest = rest + (lost + error)
    return sqrt_rn(total + rest), e, infinite


def _length(parts: list[tensor]) -> tensor:
    root, e, infinite = _norm([cast_to(x, F64) for x in parts])
    return cast_to(where(infinite, float("inf"), root * power_of_two(e)), parts[0].dtype)


def _inverse(parts: list[tensor]) -> tensor:
    root, e, infinite = _norm([cast_to(x, F64) for x in parts])
    return cast_to(where(infinite, 0.0, div_rn(1.0, root) * power_of_two(-e)), parts[0].dtype)


@builtin
def hypot(x: Operand, y: Operand) -> tensor:
    """sqrt(x**2 + y**2) in the common float type (integers, f16, bf16: f32); inf beside NaN is inf."""
    return _length(operands(x, y, function="hypot"))


@builtin
def rhypot(x: Operand, y: Operand) -> tensor:
    """1 / hypot(x, y)."""
    return _inverse(operands(x, y, function="rhypot"))


@builtin
def norm3d(x: Operand, y: Operand, z: Operand) -> tensor:
    """sqrt(x**2 + y**2 + z**2), as :func:`hypot`."""
    return _length(operands(x, y, z, function="norm3d"))


@builtin
def rnorm3d(x: Operand, y: Operand, z: Operand) -> tensor:
    """1 / norm3d(x, y, z)."""
    return _inverse(operands(x, y, z, function="rnorm3d"))


@builtin
def norm4d(x: Operand, y: Operand, z: Operand, w: Operand) -> tensor:
    """sqrt(x**2 + y**2 + z**2 + w**2), as :func:`hypot`."""
    return _length(operands(x, y, z, w, function="norm4d"))


@builtin
def rnorm4d(x: Operand, y: Operand, z: Operand, w: Operand) -> tensor:
    """1 / norm4d(x, y, z, w)."""
    return _inverse(operands(x, y, z, w, function="rnorm4d"))


def _cube_root(x: tensor) -> tuple[tensor, tensor]:
    """(y, k) with y * 2**k the cube root of a positive f64, y in [1, 2]."""
    m, e = split(x)
    k = (e + 3000) // 3 - 1000
    a = m * power_of_two(e - 3 * k)
    y = cast_to(exp2(log2(cast_to(a, F32)) * (1 / 3)), F64)
    cube = y * y * y
    y = y * div_rn(cube + 2.0 * a, 2.0 * cube + a)  # Halley: the error is cubed
    square = fma(y, y, -0.0)
    off = fma(square, y, -a) + fma(y, y, -square) * y
    return fma(div_rn(off, square), -1 / 3, y), k


@builtin
def cbrt(x: Operand) -> tensor:
    """The cube root, with the sign of x, in the float type of ``x`` (integers: f32)."""
    x = real(x, "cbrt")
    regular = is_finite(x) & (x != 0)
    y, k = _cube_root(abs(cast_to(where(regular, x, 1.0), F64)))
    return where(regular, copysign(cast_to(y * power_of_two(k), x.dtype), x), x)


@builtin
def rcbrt(x: Operand) -> tensor:
    """1 / cbrt(x): infinite with the sign of x for 0, in the float type of ``x`` (integers: f32)."""
    x = real(x, "rcbrt")
    regular = is_finite(x) & (x != 0)
    y, k = _cube_root(abs(cast_to(where(regular, x, 1.0), F64)))
    made = copysign(cast_to(div_rn(1.0, y) * power_of_two(-k), x.dtype), x)
    return where(regular, made, where(x == 0, copysign(float("inf"), x), where(isinf(x), copysign(0.0, x), x)))


__all__ = ["cbrt", "hypot", "norm3d", "norm4d", "rcbrt", "rhypot", "rnorm3d", "rnorm4d"]
