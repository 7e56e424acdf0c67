"""Matrix products of microscaling formats: blocks of small numbers that share a scale.

Formats and scales are those of OCP's Microscaling Formats (MX) specification 1.0. No target here multiplies them as
they are, so operands become bf16 (f16 where one of them is f16, as in Triton), which holds every e2m1, e4m3 and e5m2.
"""

from __future__ import annotations

from ..errors import TypeMismatch
from ..ir.types import BF16, F8E4M3, F8E5M2, F16, F32, I8, U8, U16, U32, Scalar
from .arithmetic import bit_and, bit_or, cast, cast_to, constant, mul, shift_left, shift_right
from .builtin import builtin
from .conditions import compare, where
from .products import dot
from .promotion import scalar_type
from .shapes import broadcast_to, expand_dims, join, permute, reshape
from .tensor import tensor

_FORMATS = {"e2m1": U8, "e4m3": F8E4M3, "e5m2": F8E5M2, "bf16": BF16, "fp16": F16}
#: Two times the exponent that a half's bias of 15 leaves too small for e2m1, whose bias is 1.
_E2M1_IN_HALF = 2.0**14


@builtin
def dot_scaled(
    lhs: tensor,
    lhs_scale: tensor | None,
    lhs_format: str,
    rhs: tensor,
    rhs_scale: tensor | None,
    rhs_format: str,
    acc: tensor | None = None,
    fast_math: bool = False,
    lhs_k_pack: bool = True,
    rhs_k_pack: bool = True,
    out_dtype: object = F32,
) -> tensor:
    """(lhs * lhs_scale)[M, K] @ (rhs * rhs_scale)[K, N] + acc[M, N], in f32; of rank 3 it is a batch of products.

    Formats are ``"e2m1" "e4m3" "e5m2" "bf16" "fp16"``. ``e2m1`` comes packed, two in a uint8, the first one in the low
    bits: along K, or along M (N) where ``lhs_k_pack`` (``rhs_k_pack``) is False. The others come as their own type, or
    as unsigned integers of the same bits. A scale is uint8, an exponent with bias 127 (e8m0; 255 is NaN, unless
    ``fast_math``), or float8e4nv; its shape is [M, K / g] and [N, K / g] for groups of g elements, not transposed for
    ``rhs``.

    Raises TypeMismatch: formats, element types or shapes that do not fit each other.
    """
    if (given := scalar_type(out_dtype)) != F32:
        raise TypeMismatch(f"tl.dot_scaled gives float32, not {given.code}")
    halves = "fp16" in (lhs_format, rhs_format)
    target = F16 if halves else BF16
    a = _operand("lhs", lhs, lhs_format, lhs_k_pack, -1 if lhs_k_pack else -2)
    b = _operand("rhs", rhs, rhs_format, rhs_k_pack, -2 if rhs_k_pack else -1)
    if len(a.shape) != len(b.shape) or a.shape[-1] != b.shape[-2]:
        raise TypeMismatch(f"tl.dot_scaled of {lhs_format} {lhs.type} and {rhs_format} {rhs.type}: they differ in K")
    groups = {scale.shape[-1] for scale in (lhs_scale, rhs_scale) if scale is not None}
    if len(groups) == 2:
        sizes = [a.shape[-1] // scale.shape[-1] for scale in (lhs_scale, rhs_scale) if scale is not None]
        raise TypeMismatch(f"Operands must have the same scale factor; (lhs: {sizes[0]} vs rhs: {sizes[1]})")
    a, b = cast_to(a, target), cast_to(b, target)
    if lhs_scale is not None:
        a = mul(a, _spread("lhs_scale", lhs_scale, a.shape, target, fast_math))
    if rhs_scale is not None:
        turned = (*b.shape[:-2], b.shape[-1], b.shape[-2])
        b = mul(b, _turned(_spread("rhs_scale", rhs_scale, turned, target, fast_math)))
    return dot(a, b, acc)


def _operand(side: str, x: tensor, format: str, k_pack: bool, packed_axis: int) -> tensor:
    """The elements of an operand as floats, unpacked."""
    if format not in _FORMATS:
        raise TypeMismatch(f"{side}_format is {format!r}", hint=f"use {', '.join(_FORMATS)}")
    if len(x.shape) not in (2, 3):
        raise TypeMismatch(f"tl.dot_scaled takes tiles of rank 2 or 3, got {x.value.type} as {side}")
    if not k_pack and format != "e2m1":
        raise TypeMismatch(f"{side}_k_pack=False is for e2m1: {format} is not packed")
    wanted = _FORMATS[format]
    bits = U8 if wanted.bits == 8 else U16
    if x.dtype not in (wanted, bits):
        raise TypeMismatch(f"{side} of format {format} is {wanted.spelling} or {bits.spelling}, got {x.value.type}")
    if format == "e2m1":
        return _unpacked(x) if packed_axis == -1 else _turned(_unpacked(_turned(x)))
    return x if x.dtype == wanted else cast(x, wanted, bitcast=True)


def _unpacked(x: tensor) -> tensor:
    """Two e2m1 numbers from each byte, as f16: the last axis is twice as long."""
    both = join(_e2m1(x), _e2m1(shift_right(x, 4)))
    return reshape(both, (*x.shape[:-1], 2 * x.shape[-1]))


def _e2m1(codes: tensor) -> tensor:
    """The numbers that the low four bits stand for. Exponent and fraction become those of a half, which is too small
    by a power of two; that holds for the one subnormal number, 0.5, too."""
    wide = cast_to(codes, U16)
    magnitude, sign = shift_left(bit_and(wide, 7), 9), shift_left(bit_and(wide, 8), 12)
    return mul(cast(bit_or(magnitude, sign), F16, bitcast=True), _E2M1_IN_HALF)


def _spread(name: str, scale: tensor, shape: tuple[int, ...], target: Scalar, fast_math: bool) -> tensor:
    """The scale of every element of an operand of ``shape``, whose last axis is K."""
    groups = scale.shape[-1] if scale.shape else 0
    if len(scale.shape) != len(shape) or scale.shape[:-1] != shape[:-1] or groups > shape[-1]:
        raise TypeMismatch(
            f"{name} is {scale.type}", hint=f"its shape is {list(shape[:-1])} and a divisor of {shape[-1]}"
        )
    each = expand_dims(_number(name, scale, target, fast_math), len(shape))
    return reshape(broadcast_to(each, (*scale.shape, shape[-1] // groups)), shape)


def _number(name: str, scale: tensor, target: Scalar, fast_math: bool) -> tensor:
    """A scale as a float: 2 ** (code - 127) of 8-bit codes, as bytes without a sign."""
    if scale.dtype == F8E4M3:
        return cast_to(scale, target)
    if scale.dtype == I8:
        scale = cast(scale, U8, bitcast=True)
    if scale.dtype != U8:
        raise TypeMismatch(f"{name} is uint8 (e8m0) or float8e4nv, got {scale.type}")
    exponent = shift_left(cast_to(scale, U32), 23)
    # 2 ** -127 has no exponent of its own: it is half the smallest normal number.
    bits = where(compare(scale, constant(0, U8), "eq"), constant(1 << 22, U32, ()), exponent)
    number = cast_to(cast(bits, F32, bitcast=True), target)
    return number if fast_math else where(compare(scale, constant(255, U8), "eq"), float("nan"), number)


def _turned(x: tensor) -> tensor:
    """The last two axes exchanged."""
    rank = len(x.shape)
    return permute(x, (*range(rank - 2), rank - 1, rank - 2))
