"""Euclidean norms without overflow on the way, and cube roots. Inverses of f32 are computed in f64.

Squares are summed with their errors after division by a power of two, so that a norm is off by its last roundings only.
"""

from __future__ import annotations

from ...ir.types import F32, F64, I32
from ...tile import elementwise as ew
from ..arithmetic import cast_to, constant
from ..builtin import builtin
from ..conditions import where
from ..maths import abs, copysign, div_rn, exp2, isinf, log2, sqrt_rn
from ..tensor import Operand, emit, tensor
from .bits import bits_of, by_type, is_finite, power_of_two, real, reinterpret, split, two_sum, with_sign_of
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


def _norm_of_f32(parts: list[tensor]) -> tuple[tensor, tensor, tensor]:
    """(root, e, infinite), e being the bits of a power of two that root is to be multiplied by."""
    parts = [abs(x) for x in parts]
    largest = parts[0]
    for x in parts[1:]:
        largest = maximum(largest, x)
    e = minimum(maximum(bits_of(largest) & 0x7F800000, 1 << 23), 252 << 23)
    scale = reinterpret((254 << 23) - e, F32)
    total = None
    for x in parts:
        x = fma(x, scale, -0.0)
        total = fma(x, x, -0.0 if total is None else total)
    return sqrt_rn(total), e, isinf(largest)


def _length(parts: list[tensor]) -> tensor:
    if parts[0].dtype != F64:
        root, e, infinite = _norm_of_f32([cast_to(x, F32) for x in parts])
        return cast_to(where(infinite, float("inf"), root * reinterpret(e, F32)), parts[0].dtype)
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


def _cube_root_of_f32(x: tensor) -> tensor:
    """The cube root of a positive finite f32, within 2/3 of a unit. A third of the bits, which are nearly a
    logarithm, leads to 1 / cbrt(x), two steps that cube the error, and one of Newton's on the root itself."""
    tiny = x < 2.0**-126
    a = where(tiny, x * 2.0**24, x)
    third = emit(ew.MulHigh(bits_of(a).value, constant(0x55555556, I32, x.shape).value))
    r = reinterpret(0x54A1F600 - third, F32)
    for _ in range(2):
        off = fma(fma(a, r, -0.0), -(fma(r, r, -0.0)), 1.0)
        r = fma(fma(r, off, -0.0), fma(off, 2 / 9, 1 / 3), r)
    square = fma(r, r, -0.0)
    y = fma(a, square, -0.0)
    y_square = fma(y, y, -0.0)
    over = fma(fma(y, y, -y_square), y, fma(y_square, y, -a))
    return fma(over * square, -1 / 3, y) * where(tiny, 2.0**-8, 1.0)


@builtin
def cbrt(x: Operand) -> tensor:
    """The cube root, with the sign of x, in the float type of ``x`` (integers: f32)."""

    def single(x: tensor) -> tensor:
        return where(is_finite(x) & (x != 0), with_sign_of(_cube_root_of_f32(abs(x)), x), x)

    def double(x: tensor) -> tensor:
        regular = is_finite(x) & (x != 0)
        y, k = _cube_root(abs(where(regular, x, 1.0)))
        return where(regular, copysign(y * power_of_two(k), x), x)

    return by_type(x, "cbrt", single, double)


@builtin
def rcbrt(x: Operand) -> tensor:
    """1 / cbrt(x): infinite with the sign of x for 0, in the float type of ``x`` (integers: f32)."""
    x = real(x, "rcbrt")
    regular = is_finite(x) & (x != 0)
    y, k = _cube_root(abs(cast_to(where(regular, x, 1.0), F64)))
    made = copysign(cast_to(div_rn(1.0, y) * power_of_two(-k), x.dtype), x)
    return where(regular, made, where(x == 0, copysign(float("inf"), x), where(isinf(x), copysign(0.0, x), x)))


__all__ = ["cbrt", "hypot", "norm3d", "norm4d", "rcbrt", "rhypot", "rnorm3d", "rnorm4d"]
