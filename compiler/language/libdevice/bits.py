"""Floats as the integers of their bits: what the other functions of libdevice take numbers apart with."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import TypeMismatch
from ...ir.types import F32, F64, I16, I32, I64, U32, U64, Scalar
from ...tile import elementwise as ew
from ..arithmetic import as_tensor, cast_to, constant
from ..conditions import where
from ..tensor import Operand, emit, tensor
from .joined import fma

_BITS = {16: I16, 32: I32, 64: I64}
UNSIGNED = {I32: U32, I64: U64}


def reinterpret(x: tensor, type: Scalar) -> tensor:
    """The bits of ``x`` as ``type``, which has its width."""
    return x if x.dtype == type else emit(ew.Bitcast(x.value, type))


def bits_of(x: tensor) -> tensor:
    """The bits of a float as a signed integer of its width."""
    return reinterpret(x, _BITS[x.dtype.bits])


def given(x: Operand, type: Scalar, function: str) -> tensor:
    """``x`` as ``type``: numbers, and tensors that it holds exactly.

    Raises TypeMismatch for a tensor of another kind and for one that is wider.
    """
    if not isinstance(x, tensor):
        return as_tensor(x, type)
    if not isinstance(x.dtype, Scalar) or x.dtype.is_float != type.is_float or x.dtype.bits > type.bits:
        raise TypeMismatch(
            f"libdevice.{function} takes {type.code}, got {x.value.type}", hint=f"cast it with .to({_name(type)})"
        )
    narrower = x.dtype.bits < type.bits
    return cast_to(x, type) if narrower or type.is_float else reinterpret(x, type)


def _name(type: Scalar) -> str:
    return f"tl.{type.spelling}"


def real(x: Operand, function: str) -> tensor:
    """``x`` as floats; integers become f32. Raises TypeMismatch for pointers."""
    x = as_tensor(x)
    if not isinstance(x.dtype, Scalar):
        raise TypeMismatch(f"libdevice.{function} takes numbers, got {x.value.type}")
    return x if x.dtype.is_float else cast_to(x, F32)


def by_type(
    x: Operand, function: str, single: Callable[[tensor], tensor], double: Callable[[tensor], tensor]
) -> tensor:
    """``double`` of f64, ``single`` of f32 and, rounded, of narrower types; integers become f32."""
    x = real(x, function)
    made = double(x) if x.dtype == F64 else single(cast_to(x, F32))
    return cast_to(made, x.dtype)


def sum_rn(x: tensor, y: Operand) -> tensor:
    """x + y rounded once, never fused with a product that made x or y."""
    return fma(x, 1.0, y)


def two_sum(x: tensor, y: tensor) -> tuple[tensor, tensor]:
    """The rounded sum and its error (Knuth)."""
    total = sum_rn(x, y)
    part = sum_rn(total, -x)
    return total, sum_rn(sum_rn(x, -sum_rn(total, -part)), sum_rn(y, -part))


def reciprocal(x: tensor) -> tensor:
    """1 / x as one instruction of GPUs, of f32 within a unit in the last place; may be 0 or infinite where ``x`` or the
    result is below the normal numbers."""
    return emit(ew.Reciprocal(x.value))


def next_up(x: tensor) -> tensor:
    """The least number above ``x``, which is neither NaN nor +inf."""
    i = bits_of(x)
    return reinterpret(where(x == 0, 1, where(i < 0, i - 1, i + 1)), x.dtype)


def next_down(x: tensor) -> tensor:
    """The greatest number below ``x``, which is neither NaN nor -inf."""
    return -next_up(-x)


def is_finite(x: tensor) -> tensor:
    """int1: neither infinite nor NaN."""
    return emit(ew.Abs(x.value)) < float("inf")


def split(x: tensor) -> tuple[tensor, tensor]:
    """f64 as (m, e) with x = m * 2**e, m of magnitude [1, 2) with the sign of x, e int64; of 0 (0, -5000)."""
    tiny = emit(ew.Abs(x.value)) < 2.0**-1022
    i = bits_of(where(tiny, x * 2.0**54, x))
    exponent = ((i >> 52) & 0x7FF) - where(tiny, 1023 + 54, 1023)
    m = reinterpret((i & ~(0x7FF << 52)) | (1023 << 52), F64)
    return where(x == 0, x, m), where(x == 0, -5000, exponent)


def power_of_two(e: tensor) -> tensor:
    """2**e as f64 of an int64 ``e`` in [-1022, 1023]."""
    return reinterpret((e + 1023) << 52, F64)


def with_sign_of(x: tensor, sign: tensor) -> tensor:
    """f32 ``x``, which is positive or has that sign already, with the sign bit of ``sign``."""
    return reinterpret(bits_of(x) | (bits_of(sign) & -0x80000000), F32)


def polynomial(x: tensor, coefficients: tuple[float, ...]) -> tensor:
    """sum(c[i] * x**i) of f32 or f64 ``x``."""
    total = constant(coefficients[-1], x.dtype, x.shape)
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total
