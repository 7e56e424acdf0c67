"""The floating-point formats narrower than 64 bits."""

from __future__ import annotations

from typing import NamedTuple


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
}
