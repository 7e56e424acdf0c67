"""Numbers as arguments of a kernel: what every target makes of them.

Floats become what the cast of the language makes of them: they are rounded to nearest, and beyond their type infinite,
as those of a cast in C and Triton's are, or the largest number of the 8-bit formats. Integers keep their value or are
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .errors import LaunchError
from .ir.types import BF16, SCALARS, Pointer, Tile
from .tile.formats import bf16_bits, f8_bits, round_to

#: Formats without a number of Python's struct, which travel as bits; by code, of a float its bits.
ENCODERS: dict[str, Callable[[float], int]] = {
    BF16.code: bf16_bits,
    **{code: partial(f8_bits, type=type) for code, type in SCALARS.items() if type.is_float and type.bits == 8},
}


def fitting(argument: str, value: int | float, type: Tile) -> int | float:
    """``value`` as a number that ``type`` has, which is a pointer's or that of a scalar without an encoder. Raises
    LaunchError where there is none; ``argument`` is what its message calls it."""
    element = type.elem
    if isinstance(element, Pointer):
        if 0 <= value < 1 << 64:
            return value
        raise LaunchError(f"{argument}: no address of 64 bits was passed as {element.code}")
    if element.is_float:
        return round_to(float(value), element)
    if element.kind == "bool" or element.wrap(int(value)) == value:
        return value
    low = -1 << element.bits - 1 if element.is_signed else 0
    high = low + (1 << element.bits) - 1
    raise LaunchError(
        f"{argument}: int {value} does not fit {element.code}", hint=f"{element.code} has {low} to {high}"
    )
