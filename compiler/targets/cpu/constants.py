"""Constants in the form in which registers hold them."""

from __future__ import annotations

from ...ir.types import BF16, F8E4M3, F8E5M2, Scalar
from ...llvm.typed import constant
from ...tile.elementwise import Constant
from ...tile.formats import bf16_bits, f8_bits
from .chunk import Uniform, llvm_element, power_of_two_divisor


def constant_value(op: Constant) -> Uniform:
    """The scalar behind a constant tile."""
    elem = op.type.elem
    number = op.value
    if isinstance(elem, Scalar) and elem in (BF16, F8E4M3, F8E5M2):
        bits = bf16_bits(float(number)) if elem == BF16 else f8_bits(float(number), elem)
        return Uniform(constant(llvm_element(elem), bits), 0)
    value = constant(llvm_element(elem), number)
    if isinstance(number, bool) or not isinstance(number, int):
        return Uniform(value, 0)
    return Uniform(value, 0, number, power_of_two_divisor(number))
