"""Element types that are stored and not computed with: their conversions, made of operations on integers and f32.

``float8e4b8`` and ``float8e5b16`` are the FNUZ formats: the code of minus zero is NaN, and there are no infinities (as
``ml_dtypes`` and torch have them under the names float8_e4m3fnuz and float8_e5m2fnuz). ``float8e4b15`` is Triton's own:
the exponents and three bits of mantissa of an f16 below 2, with neither infinities nor NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.types import F8E4B8, F8E4B15, F8E5B16, F16, F32, F64, I16, I32, U8, Element, Scalar, Tile
from ..tile import elementwise as ew
from .tensor import emit, tensor


@dataclass(frozen=True, slots=True)
class _Format:
    """A FNUZ format: bits of mantissa, bias of the exponent, code of the largest number."""

    mantissa: int
    bias: int
    largest: int = 0x7F


_FORMATS = {F8E4B8: _Format(3, 8), F8E5B16: _Format(2, 16)}
#: The formats in which the code of minus zero is NaN, and that code.
FNUZ = frozenset(_FORMATS)
NAN = 0x80
#: The bits of 1.75 in f16, the largest number that is written as float8e4b15.
_LARGEST_E4B15 = 0x3F00
_F32_INFINITY = 0x7F800000


def converted(x: tensor, to: Scalar, rounding: str) -> tensor:
    """``x``, of which the type or ``to`` is one that is only stored, as ``to``; numbers beyond the range saturate.

    ``rounding`` ("rtne", "rtz") is that of FNUZ formats. To float8e4b15 numbers are rounded as Triton does it: towards
    zero to an f16, from there to nearest, ties away from zero; NaN gives 1.75.
    """
    source = x.dtype
    if isinstance(source, Scalar) and source.is_stored_only:
        wide = _half_of(x) if source == F8E4B15 else _widened(x, _FORMATS[source])
        if to.is_stored_only:
            return converted(wide, to, rounding)
        return wide if wide.dtype == to else emit(ew.Cast(wide.value, to, rounding))
    if to == F8E4B15:
        return _e4b15_of(x)
    return _narrowed(_single_of(x, rounding), to, rounding)


# FNUZ ----------------------------------------------------------------------------------------------------------


def _widened(x: tensor, f: _Format) -> tensor:
    """The f32 of the same value."""
    bits = _cast(_bitcast(x, U8), I32)
    magnitude = _and(bits, 0x7F)
    exponent = _number((127 - f.bias) << 23, magnitude)
    normal = _bitcast(emit(ew.Add(_shl(magnitude, 23 - f.mantissa).value, exponent.value)), F32)
    unit = _number(2.0 ** (1 - f.bias - f.mantissa), _cast(magnitude, F32))
    tiny = emit(ew.Mul(_cast(magnitude, F32).value, unit.value))
    value = _select(_compare(magnitude, 1 << f.mantissa, "lt"), tiny, normal)
    signed = _bitcast(emit(ew.Or(_bitcast(value, I32).value, _shl(_and(bits, 0x80), 24).value)), F32)
    return _select(_compare(bits, NAN, "eq"), _number(float("nan"), signed), signed)


def _narrowed(x: tensor, to: Scalar, rounding: str) -> tensor:
    """The nearest number of ``to``, or the nearest towards zero, of an f32."""
    f = _FORMATS[to]
    bits = _bitcast(x, I32)
    magnitude = _and(bits, 0x7FFFFFFF)
    shift = 23 - f.mantissa
    rounded = magnitude
    if rounding == "rtne":
        odd = _and(_shr(magnitude, shift), 1)
        rounded = _add(emit(ew.Add(magnitude.value, odd.value)), (1 << (shift - 1)) - 1)
    normal = _add(_shr(rounded, shift), -((127 - f.bias) << f.mantissa))
    # Below the smallest normal number codes are multiples of the smallest one.
    scale = _number(2.0 ** (f.bias + f.mantissa - 1), x)
    quanta = emit(ew.Mul(_bitcast(magnitude, F32).value, scale.value))
    if rounding == "rtne":
        quanta = emit(ew.RoundEven(quanta.value))
    is_tiny = _compare(magnitude, (127 - f.bias + 1) << 23, "lt")
    # What is not tiny may be more than an integer holds.
    tiny = _cast(_select(is_tiny, quanta, _number(0.0, quanta)), I32)
    code = _smaller(_select(is_tiny, tiny, normal), f.largest)
    negative = emit(ew.And(_compare(bits, 0, "lt").value, _compare(code, 0, "ne").value))  # there is no -0
    code = _select(negative, _add(code, 0x80), code)
    code = _select(_compare(magnitude, _F32_INFINITY, "gt"), _number(NAN, code), code)
    return _bitcast(_cast(code, U8), to)


def _single_of(x: tensor, rounding: str) -> tensor:
    """``x`` as an f32 that rounds as it does: what f32 does not hold is rounded towards zero, with the last bit set."""
    if x.dtype == F32:
        return x
    if not isinstance(x.dtype, Scalar) or x.dtype.bits < 32:
        return _cast(x, F32)
    x = _cast(x, F64)
    short = emit(ew.Cast(x.value, F32, "rtz"))
    if rounding == "rtz":
        return short
    inexact = emit(ew.Compare(_cast(short, F64).value, x.value, "ne"))
    odd = emit(ew.Or(_bitcast(short, I32).value, _cast(inexact, I32).value))
    return _select(emit(ew.Compare(x.value, x.value, "eq")), _bitcast(odd, F32), short)


# float8e4b15 ---------------------------------------------------------------------------------------------------


def _half_of(x: tensor) -> tensor:
    """The f16 of the same value: the code but for its sign, seven bits further up."""
    bits = _cast(_bitcast(x, U8), I32)
    whole = emit(ew.Or(_shl(_and(bits, 0x7F), 7).value, _shl(_and(bits, 0x80), 8).value))
    return _bitcast(_cast(whole, I16), F16)


def _e4b15_of(x: tensor) -> tensor:
    if x.dtype != F16:
        x = emit(ew.Cast(_single_of(x, "rtz").value, F16, "rtz"))
    bits = _cast(_bitcast(x, I16), I32)
    magnitude = _smaller(_and(bits, 0x7FFF), _LARGEST_E4B15)
    code = _shr(_add(_shl(magnitude, 1), 0x80), 8)
    return _bitcast(_cast(emit(ew.Or(code.value, _and(_shr(bits, 8), 0x80).value)), U8), F8E4B15)


# Operations ----------------------------------------------------------------------------------------------------


def _number(value: int | float, like: tensor) -> tensor:
    return emit(ew.Constant(value, Tile(like.dtype, like.shape)))


def _cast(x: tensor, to: Element) -> tensor:
    return x if x.dtype == to else emit(ew.Cast(x.value, to))


def _bitcast(x: tensor, to: Element) -> tensor:
    return x if x.dtype == to else emit(ew.Bitcast(x.value, to))


def _add(x: tensor, number: int) -> tensor:
    return emit(ew.Add(x.value, _number(number, x).value))


def _and(x: tensor, number: int) -> tensor:
    return emit(ew.And(x.value, _number(number, x).value))


def _shl(x: tensor, number: int) -> tensor:
    return emit(ew.Shl(x.value, _number(number, x).value))


def _shr(x: tensor, number: int) -> tensor:
    return emit(ew.Shr(x.value, _number(number, x).value))


def _smaller(x: tensor, number: int) -> tensor:
    return emit(ew.Min(x.value, _number(number, x).value))


def _compare(x: tensor, number: int, predicate: str) -> tensor:
    return emit(ew.Compare(x.value, _number(number, x).value, predicate))


def _select(condition: tensor, x: tensor, y: tensor) -> tensor:
    return emit(ew.Select(condition.value, x.value, y.value))
