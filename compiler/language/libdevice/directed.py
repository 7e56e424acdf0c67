"""Sums, products, quotients and roots in each direction of rounding, exact for every argument of f32 and f64.

The nearest number is corrected by one step where the sign of its error asks for it. That sign comes from f64 without
error: arguments are taken apart into numbers around 1 and exponents, so nothing overflows or underflows, and the error
of a fused multiplication and addition is exact in sums of f64 (Boldo and Muller, "Exact and approximated error of the
FMA", IEEE Transactions on Computers 60 (2011)). f16 and bf16 are computed, and given, in f32.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.types import F32, F64
from ..arithmetic import as_tensor, broadcast_all, cast_to, constant
from ..builtin import builtin
from ..conditions import where
from ..maths import div_rn as quotient
from ..maths import isinf
from ..maths import sqrt_rn as root
from ..tensor import Operand, tensor
from .bits import bits_of, given, is_finite, next_down, next_up, power_of_two, real, split, sum_rn, two_sum
from .joined import fma, maximum, minimum


def directed(near: tensor, error: tensor, rounding: str) -> tensor:
    """The neighbour of ``near`` that ``rounding`` (rn, rz, rd, ru) asks for, where ``error`` is exact - near."""
    down, up = error < 0, error > 0
    if rounding == "rn":
        return near
    if rounding == "rz":
        down, up = down & (near > 0), up & (near < 0)
    if rounding != "ru":
        near = where(down, next_down(near), near)
    return near if rounding == "rd" else where(up, next_up(near), near)


def _scaled(m: tensor, e: tensor, top: tensor) -> tensor:
    """m * 2**(e - top), or with its sign far below everything that matters."""
    return m * power_of_two(minimum(maximum(e - top, -400), 400))


def _error(x: tensor, y: tensor, z: tensor, near: tensor) -> tensor:
    """A number of the sign of x * y + z - near, of finite f64 where ``near`` is x * y + z rounded to some precision."""
    (mx, ex), (my, ey), (mz, ez), (mr, er) = (split(v) for v in (x, y, z, near))
    top = maximum(ex + ey, ez)
    x, y, z, near = _scaled(mx, ex + ey, top), my, _scaled(mz, ez, top), _scaled(mr, er, top)
    rounded = fma(x, y, z)
    product = fma(x, y, -0.0)
    a, a_rest = two_sum(z, fma(x, y, -product))
    b, b_rest = two_sum(product, a)
    rest = sum_rn(sum_rn(sum_rn(b, -rounded), b_rest), a_rest)
    return where(rounded != near, sum_rn(rounded, -near), rest)


def operands(*operands: Operand, function: str) -> list[tensor]:
    """All in the common float type, f32 or f64, and shape."""
    tensors = [real(x, function) for x in operands if isinstance(x, tensor)]
    type = F64 if any(x.dtype == F64 for x in tensors) else F32
    return broadcast_all(
        *(cast_to(real(x, function), type) if isinstance(x, tensor) else as_tensor(x, type) for x in operands)
    )


def _error_of(x: tensor, y: tensor, z: tensor, near: tensor) -> tensor:
    return _error(*(cast_to(v, F64) for v in (x, y, z, near)))


def _filled(x: tensor, value: float) -> tensor:
    return constant(value, x.dtype, x.shape)


def _corrected(near: tensor, error: tensor, exact: tensor, rounding: str) -> tensor:
    """``near`` in the direction ``rounding``, unless it is ``exact``; the error of an overflow is on the side of 0."""
    error = where(isinf(near), cast_to(-near, F64), error)
    return directed(near, where(exact, 0.0, error), rounding)


def _sum_of_product(x: tensor, y: tensor, z: tensor, rounding: str) -> tensor:
    near = fma(x, y, z)
    if rounding == "rn":
        return near
    error = _error_of(x, y, z, near)
    exact = ~(is_finite(x) & is_finite(y) & is_finite(z))
    made = _corrected(near, error, exact, rounding)
    if rounding == "rd":  # x - x is -0
        signs_differ = (bits_of(x) ^ bits_of(y) ^ bits_of(z)) < 0
        made = where((near == 0) & (error == 0) & signs_differ & ~exact, -0.0, made)
    return made


def _product(x: tensor, y: tensor, rounding: str) -> tensor:
    near = fma(x, y, -0.0)
    if rounding == "rn":
        return near
    error = _error_of(x, y, _filled(x, 0.0), near)
    return _corrected(near, error, ~(is_finite(x) & is_finite(y)), rounding)


def _quotient(x: tensor, y: tensor, rounding: str) -> tensor:
    near = quotient(x, y)
    if rounding == "rn":
        return near
    rest = _error_of(-near, y, x, _filled(x, 0.0))
    exact = ~(is_finite(x) & is_finite(y)) | (y == 0)
    return _corrected(near, where(y < 0, -rest, rest), exact, rounding)


def _root(x: tensor, rounding: str) -> tensor:
    near = root(x)
    if rounding == "rn":
        return near
    rest = _error_of(-near, near, x, _filled(x, 0.0))
    return _corrected(near, rest, ~is_finite(x) | (x <= 0), rounding)


_Function = Callable[..., tensor]
_HOW = {"rn": "to nearest, ties to even", "rz": "towards zero", "rd": "down", "ru": "up"}


def _named(function: _Function, name: str, rounding: str, what: str) -> _Function:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{what} rounded {_HOW[rounding]}, in the common float type (integers, f16, bf16: f32) and shape."
    )
    return builtin(function)


def _add(rounding: str) -> _Function:
    def add(x: Operand, y: Operand) -> tensor:
        a, b = operands(x, y, function=name)
        return _sum_of_product(a, _filled(a, 1.0), b, rounding)

    name = f"add_{rounding}"
    return _named(add, name, rounding, "x + y")


def _sub(rounding: str) -> _Function:
    def sub(x: Operand, y: Operand) -> tensor:
        a, b = operands(x, y, function=name)
        return _sum_of_product(a, _filled(a, 1.0), -b, rounding)

    name = f"sub_{rounding}"
    return _named(sub, name, rounding, "x - y")


def _mul(rounding: str) -> _Function:
    def mul(x: Operand, y: Operand) -> tensor:
        return _product(*operands(x, y, function=name), rounding)

    name = f"mul_{rounding}"
    return _named(mul, name, rounding, "x * y, never fused with a sum,")


def _div(rounding: str) -> _Function:
    def div(x: Operand, y: Operand) -> tensor:
        return _quotient(*operands(x, y, function=name), rounding)

    name = f"div_{rounding}"
    return _named(div, name, rounding, "x / y")


def _rcp(rounding: str) -> _Function:
    def rcp(x: Operand) -> tensor:
        (a,) = operands(x, function=name)
        return _quotient(_filled(a, 1.0), a, rounding)

    name = f"rcp_{rounding}"
    return _named(rcp, name, rounding, "1 / x")


def _sqrt(rounding: str) -> _Function:
    def sqrt(x: Operand) -> tensor:
        return _root(*operands(x, function=name), rounding)

    name = f"sqrt_{rounding}"
    return _named(sqrt, name, rounding, "The square root of x")


def _fma(rounding: str) -> _Function:
    def multiply_add(x: Operand, y: Operand, z: Operand) -> tensor:
        return _sum_of_product(*operands(x, y, z, function=name), rounding)

    name = f"fma_{rounding}"
    return _named(multiply_add, name, rounding, "x * y + z")


def _each(make: Callable[[str], _Function]) -> tuple[_Function, ...]:
    return tuple(make(rounding) for rounding in _HOW)


add_rn, add_rz, add_rd, add_ru = _each(_add)
sub_rn, sub_rz, sub_rd, sub_ru = _each(_sub)
mul_rn, mul_rz, mul_rd, mul_ru = _each(_mul)
div_rn, div_rz, div_rd, div_ru = _each(_div)
rcp_rn, rcp_rz, rcp_rd, rcp_ru = _each(_rcp)
sqrt_rn, sqrt_rz, sqrt_rd, sqrt_ru = _each(_sqrt)
fma_rn, fma_rz, fma_rd, fma_ru = _each(_fma)


@builtin
def rsqrt_rn(x: Operand) -> tensor:
    """1 / sqrt(x) of f32 rounded to nearest, in the shape of ``x``; raises TypeMismatch for f64, as CUDA has none."""
    x = given(x, F32, "rsqrt_rn")
    wide = cast_to(x, F64)
    # Rounded twice, but no f32 has a result so close to the middle of two that it shows: all mantissas were tried.
    return cast_to(quotient(_filled(wide, 1.0), root(wide)), F32)


__all__ = [
    "add_rd",
    "add_rn",
    "add_ru",
    "add_rz",
    "div_rd",
    "div_rn",
    "div_ru",
    "div_rz",
    "fma_rd",
    "fma_rn",
    "fma_ru",
    "fma_rz",
    "mul_rd",
    "mul_rn",
    "mul_ru",
    "mul_rz",
    "rcp_rd",
    "rcp_rn",
    "rcp_ru",
    "rcp_rz",
    "rsqrt_rn",
    "sqrt_rd",
    "sqrt_rn",
    "sqrt_ru",
    "sqrt_rz",
    "sub_rd",
    "sub_rn",
    "sub_ru",
    "sub_rz",
]
