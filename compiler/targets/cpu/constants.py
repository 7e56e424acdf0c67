"""Constants in the form in which registers hold them."""

from __future__ import annotations

import struct

from ...ir.types import BF16, F8E4M3, F8E5M2, Scalar
from ...llvm.typed import constant
from ...tile.elementwise import Constant
from .chunk import Uniform, llvm_element, power_of_two_divisor
from .formats import FORMATS


def constant_value(op: Constant) -> Uniform:
    """The scalar behind a constant tile."""
    elem = op.type.elem
    number = op.value
    if isinstance(elem, Scalar) and elem in (BF16, F8E4M3, F8E5M2):
        bits = _bf16_bits(float(number)) if elem == BF16 else _f8_bits(float(number), elem)
        return Uniform(constant(llvm_element(elem), bits), 0)
    value = constant(llvm_element(elem), number)
    if isinstance(number, bool) or not isinstance(number, int):
        return Uniform(value, 0)
    return Uniform(value, 0, number, power_of_two_divisor(number))


def _f32_bits(x: float) -> int:
    try:
        return int(struct.unpack("<I", struct.pack("<f", x))[0])
    except OverflowError:
        return 0x7F800000 if x > 0 else 0xFF800000


def _bf16_bits(x: float) -> int:
    bits = _f32_bits(x)
    if x != x:
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def _f8_bits(x: float, elem: Scalar) -> int:
    f = FORMATS[elem]
    sign = (_f32_bits(x) >> 31) << 7
    if x != x:
        return f.nan
    size = min(abs(x), 1e6)
    quantum = 2.0 ** (1 - f.bias - f.mantissa)
    # 126 codes: the nearest one, the even one on a tie; beyond the largest it stays there.
    codes = range(f.largest + 1)
    best = min(codes, key=lambda k: (abs(_f8_value(k, f.mantissa, quantum) - size), k % 2))
    return sign | best


def _f8_value(code: int, mantissa: int, quantum: float) -> float:
    exponent, fraction = code >> mantissa, code & ((1 << mantissa) - 1)
    if not exponent:
        return fraction * quantum
    return float((1 << mantissa | fraction) * quantum * 2.0 ** (exponent - 1))
