"""The floating-point formats narrower than 64 bits, rounding a number to one, and truncating one to an integer."""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from ..ir.types import BF16, Scalar


class FloatFormat(NamedTuple):
    """``precision``: mantissa bits with the hidden one. ``smallest``: exponent of the smallest subnormal.

    Conversion of a number beyond ``largest`` gives infinity, or ``largest`` if the format ``saturates``: the 8-bit
    formats do, as PTX has cvt to them only with .satfinite.
    """

    precision: int
    smallest: int
    largest: float
    saturates: bool


FORMATS: dict[str, FloatFormat] = {
    "f32": FloatFormat(24, -149, float.fromhex("0x1.fffffep127"), False),
    "f16": FloatFormat(11, -24, 65504.0, False),
    "bf16": FloatFormat(8, -133, float.fromhex("0x1.fep127"), False),
    "f8e4m3": FloatFormat(4, -9, 448.0, True),
    "f8e5m2": FloatFormat(3, -16, 57344.0, True),
    "f8e4b8": FloatFormat(4, -10, 240.0, True),
    "f8e5b16": FloatFormat(3, -17, 57344.0, True),
    "f8e4b15": FloatFormat(4, -17, 1.75, True),
}


#: The codes of NaN: FNUZ formats have it in place of minus zero, float8e4b15 its largest number.
_NAN_CODES = {"f8e4m3": 0x7F, "f8e5m2": 0x7E, "f8e4b8": 0x80, "f8e5b16": 0x80, "f8e4b15": 0x7E}


def round_to(value: float, type: Scalar) -> float:
    """``value`` rounded to nearest, ties to even, as ``type``; 8-bit floats saturate, wider ones go to infinity."""
    if type.bits == 64 or value != value or value == 0:
        return value
    precision, smallest, largest, saturates = FORMATS[type.code]
    size = abs(value)
    if size < 2 * largest:
        exponent = max(math.frexp(size)[1] - precision, smallest)
        size = math.ldexp(round(math.ldexp(size, -exponent)), exponent)
    if size > largest:
        size = largest if saturates else math.inf
    return math.copysign(size, value)


class IntegerLimits(NamedTuple):
    """What floats become as integers of ``bits``: those beyond ``low`` and ``high`` these, NaN ``nan``."""

    bits: int
    low: int
    high: int
    nan: int


def integer_limits(source_bits: int, bits: int, signed: bool) -> IntegerLimits:
    """Truncating floats to integers of ``bits``, as NVIDIA's GPUs do (PTX ISA, cvt; tried on an H100, where Triton's
    kernels give the same).

    Numbers beyond the type are its nearest end, NaN is 0, or the highest bit alone if either side has 64 bits. Of 8
    bits there is no such conversion: they are the low ones of 16.
    """
    bits = max(bits, 16)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    highest = low if signed else 1 << bits - 1
    return IntegerLimits(bits, low, high, highest if 64 in (source_bits, bits) else 0)


def largest_code(type: Scalar) -> int:
    """The bits of the float type's infinity, or of its largest number if it has none: NaN of either sign is above."""
    if type.code == "f8e4m3":
        return 0x7E
    precision = 53 if type.bits == 64 else FORMATS[type.code].precision
    return ((1 << type.bits - precision) - 1) << precision - 1


def bf16_bits(value: float) -> int:
    """The 16 bits that stand for ``value`` in bfloat16, rounded as by :func:`round_to`, of which it is the fast form:
    launches wait for it."""
    if value != value:
        return 0x7FC0
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        return 0x7F80 if value > 0 else 0xFF80
    if bits & 0xFFFF == 0x8000:  # half-way between two, or just rounded to that
        (bits,) = struct.unpack("<I", struct.pack("<f", round_to(value, BF16)))
    return int((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def f8_bits(value: float, type: Scalar) -> int:
    """The byte that stands for ``value`` in an 8-bit float format (OCP OFP8, revision 1.0), rounded as by
    :func:`round_to`."""
    if value != value:
        return _NAN_CODES[type.code]
    precision, smallest, _, _ = FORMATS[type.code]
    mantissa = precision - 1
    quanta = math.ldexp(abs(round_to(value, type)), -smallest)  # a subnormal's code is its multiple of the smallest
    has_minus_zero = _NAN_CODES[type.code] != 0x80
    sign = 0x80 if math.copysign(1.0, value) < 0 and (quanta or has_minus_zero) else 0
    exponent = max(math.frexp(quanta)[1] - precision, 0)
    return sign | (exponent << mantissa) + int(math.ldexp(quanta, -exponent))
