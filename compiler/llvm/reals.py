"""Arithmetic on f32 and f64 of any lane count, with numbers as constants: what the functions' templates are written
in."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from .typed import Emitter, Typed, constant, with_element


@dataclass(frozen=True, slots=True)
class Real:
    """A binary format: its integer type, mantissa bits and exponent bias."""

    element: str
    integer: str
    mantissa: int
    bias: int

    def bits(self, value: float) -> int:
        """``value`` as its bit pattern."""
        code = ("<f", "<i") if self.element == "float" else ("<d", "<q")
        return int(struct.unpack(code[1], struct.pack(code[0], value))[0])

    def split(self, value_high: float, value_low: float) -> tuple[float, float]:
        """A constant, given as a sum of two f64, as a sum of two numbers of this format."""
        if self.element == "double":
            return value_high, value_low
        high = float(struct.unpack("<f", struct.pack("<f", value_high))[0])
        return high, value_high - high


F32 = Real("float", "i32", 23, 127)
F64 = Real("double", "i64", 52, 1023)


class Arithmetic:
    """Arithmetic with numbers as constants of one type."""

    def __init__(self, e: Emitter, real: Real, type: str) -> None:
        self.e = e
        self.real = real
        self.type = type
        self.integer = with_element(type, real.integer)

    def number(self, value: float) -> Typed:
        """A float constant of ``type``; vectors are splats."""
        return constant(self.type, value)

    def whole(self, value: int) -> Typed:
        """An integer constant as wide as the float format, with the lanes of ``type``."""
        return constant(self.integer, value)

    def add(self, x: Typed, y: Typed) -> Typed:
        """x + y; may fuse with a product if the emitter may contract."""
        return self.e.floating("fadd", x, y)

    def sub(self, x: Typed, y: Typed) -> Typed:
        """x - y; may fuse with a product if the emitter may contract."""
        return self.e.floating("fsub", x, y)

    def mul(self, x: Typed, y: Typed) -> Typed:
        """x * y; may fuse with a sum if the emitter may contract."""
        return self.e.floating("fmul", x, y)

    def polynomial(self, x: Typed, coefficients: Sequence[float]) -> Typed:
        """Horner's scheme, lowest power first."""
        total = self.number(coefficients[-1])
        for value in reversed(coefficients[:-1]):
            total = self.e.fma(total, x, self.number(value))
        return total

    def as_integer(self, x: Typed) -> Typed:
        """The bits of a float as an integer of the same width."""
        return self.e.cast("bitcast", x, self.real.integer)

    def as_float(self, x: Typed) -> Typed:
        """An integer of the format's width as the float with these bits."""
        return self.e.cast("bitcast", x, self.real.element)

    def absolute(self, x: Typed) -> Typed:
        """|x|, with the sign bit of a NaN cleared too."""
        return self.e.intrinsic("fabs", x)

    def clamp(self, x: Typed, low: float, high: float) -> Typed:
        """NaN stays."""
        x = self.e.select(self.e.compare("ogt", x, self.number(high)), self.number(high), x)
        return self.e.select(self.e.compare("olt", x, self.number(low)), self.number(low), x)

    def with_sign_of(self, x: Typed, sign: Typed) -> Typed:
        """``x``, which is positive or has that sign already, with the sign bit of ``sign``."""
        if self.real is not F32:
            return self.e.intrinsic("copysign", x, sign)
        # In front of a conversion to 16 bits LLVM would move copysign behind it, to numbers that are not yet in pairs.
        bits = self.e.binary("and", self.as_integer(sign), self.whole(-(1 << 31)))
        return self.as_float(self.e.binary("or", self.as_integer(x), bits))

    def scaled(self, x: Typed, exponent: Typed) -> Typed:
        """x * 2**exponent in two steps, so that the result may be denormal or infinite."""
        half = self.e.binary("ashr", exponent, self.whole(1))
        for part in (half, self.e.binary("sub", exponent, half)):
            biased = self.e.binary("add", part, self.whole(self.real.bias))
            power = self.as_float(self.e.binary("shl", biased, self.whole(self.real.mantissa)))
            x = self.mul(x, power)
        return x

    def rounded(self, x: Typed, factor: float) -> tuple[Typed, Typed]:
        """The integer nearest to x * factor, as a float and as an integer; |x * factor| < 2**(mantissa - 1)."""
        magic = self.number(1.5 * 2.0**self.real.mantissa)
        shifted = self.e.fma(x, self.number(factor), magic)
        bits = self.e.binary("sub", self.as_integer(shifted), self.as_integer(magic))
        return self.sub(shifted, magic), bits

    # Sums of two -------------------------------------------------------------------------------------------------

    def sum_of_two(self, x: Typed, y: Typed) -> tuple[Typed, Typed]:
        """x + y as a rounded sum and what it lost, for |x| >= |y| or x = 0 (Dekker's fast two-sum)."""
        total = self.add(x, y)
        return total, self.sub(y, self.sub(total, x))

    def product_of_two(self, x: Typed, y: Typed) -> tuple[Typed, Typed]:
        """x * y as a rounded product and what it lost."""
        product = self.mul(x, y)
        return product, self.e.fma(x, y, self.e.fneg(product))

    def times_constant(self, x: Typed, low: Typed, value: tuple[float, float]) -> tuple[Typed, Typed]:
        """(x + low) * value, with ``value`` given as a sum of two f64."""
        high, rest = self.real.split(*value)
        product, lost = self.product_of_two(x, self.number(high))
        return product, self.e.fma(low, self.number(high), self.e.fma(x, self.number(rest), lost))
