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
    size = abs(x)
    quantum = 2.0 ** (1 - f.bias - f.mantissa)
    best = 0
    # 126 codes: the nearest one, the even one on a tie.
    for code in range(1, f.largest + 1):
        value = _f8_value(code, f.mantissa, quantum)
        known = abs(_f8_value(best, f.mantissa, quantum) - size)
        if abs(value - size) < known or (abs(value - size) == known and code % 2 == 0):
            best = code
    largest = _f8_value(f.largest, f.mantissa, quantum)
    half_step = (largest - _f8_value(f.largest - 1, f.mantissa, quantum)) / 2
    if size > largest + half_step or (size == largest + half_step and f.largest % 2):
        best = f.overflow
    return sign | best


def _f8_value(code: int, mantissa: int, quantum: float) -> float:
    exponent, fraction = code >> mantissa, code & ((1 << mantissa) - 1)
    if not exponent:
        return fraction * quantum
    return float((1 << mantissa | fraction) * quantum * 2.0 ** (exponent - 1))
