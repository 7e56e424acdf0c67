"""exp, exp2, log, log2, sin, cos, tanh and erf in arithmetic that every target has, for f32 and f64, scalar or vector.

Within 2 ulp for f32 and about 1e-15 relative for f64 (tests/compiler/llvm measures both), with NaN, infinities, zeros
and denormals as IEEE 754 asks. The polynomials are fitted by development/minimax.py.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import coefficients as c
from .trigonometry import emit_sine
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

# ln 2 and log2(e) as sums of two f64.
LN2 = (0.6931471805599453, 2.3190468138462996e-17)
LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)


def emit(e: Emitter, name: str, x: Typed) -> Typed:
    """``name`` of ``x``, a float or double or a vector of them."""
    plain = Emitter(e.function)  # products and sums here are rounded where it says so
    real = F64 if x.element == "double" else F32
    if name in ("sin", "cos"):
        return emit_sine(plain, x, cosine=name == "cos")
    return _FUNCTIONS[name](_Maths(plain, real, x.type), x)


class _Maths:
    """Arithmetic with numbers as constants of one type."""

    def __init__(self, e: Emitter, real: Real, type: str) -> None:
        self.e = e
        self.real = real
        self.type = type
        self.integer = with_element(type, real.integer)

    def number(self, value: float) -> Typed:
        return constant(self.type, value)

    def whole(self, value: int) -> Typed:
        return constant(self.integer, value)

    def add(self, x: Typed, y: Typed) -> Typed:
        return self.e.floating("fadd", x, y)

    def sub(self, x: Typed, y: Typed) -> Typed:
        return self.e.floating("fsub", x, y)

    def mul(self, x: Typed, y: Typed) -> Typed:
        return self.e.floating("fmul", x, y)

    def polynomial(self, x: Typed, coefficients: Sequence[float]) -> Typed:
        """Horner's scheme, lowest power first."""
        total = self.number(coefficients[-1])
        for value in reversed(coefficients[:-1]):
            total = self.e.fma(total, x, self.number(value))
        return total

    def as_integer(self, x: Typed) -> Typed:
        return self.e.cast("bitcast", x, self.real.integer)

    def as_float(self, x: Typed) -> Typed:
        return self.e.cast("bitcast", x, self.real.element)

    def absolute(self, x: Typed) -> Typed:
        return self.e.intrinsic("fabs", x)

    def clamp(self, x: Typed, low: float, high: float) -> Typed:
        """NaN stays."""
        x = self.e.select(self.e.compare("ogt", x, self.number(high)), self.number(high), x)
        return self.e.select(self.e.compare("olt", x, self.number(low)), self.number(low), x)

    def with_sign_of(self, x: Typed, sign: Typed) -> Typed:
        return self.e.intrinsic("copysign", x, sign)

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


def _exp(m: _Maths, x: Typed) -> Typed:
    """e**x = 2**n e**r with r = x - n ln 2, |r| <= ln 2 / 2."""
    x = m.clamp(x, *((-104.0, 89.0) if m.real is F32 else (-746.0, 710.0)))
    high, low = m.real.split(*LN2)
    n, exponent = m.rounded(x, LOG2_E[0])
    r = m.e.fma(n, m.number(-high), x)
    r = m.e.fma(n, m.number(-low), r)
    return m.scaled(m.polynomial(r, c.EXP if m.real is F32 else c.EXP_64), exponent)


def _exp2(m: _Maths, x: Typed) -> Typed:
    """2**x = 2**n 2**r with |r| <= 1/2, r exact."""
    x = m.clamp(x, *((-151.0, 129.0) if m.real is F32 else (-1076.0, 1025.0)))
    n, exponent = m.rounded(x, 1.0)
    r = m.sub(x, n)
    return m.scaled(m.polynomial(r, c.EXP2 if m.real is F32 else c.EXP2_64), exponent)


def _decomposed(m: _Maths, x: Typed) -> tuple[Typed, Typed]:
    """(k, f) with x = 2**k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for positive finite x."""
    real = m.real
    lift = real.mantissa + 2
    tiny = m.e.compare("olt", x, m.number(2.0 ** (1 - real.bias)))
    x = m.e.select(tiny, m.mul(x, m.number(2.0**lift)), x)
    bits = m.as_integer(x)
    above = m.e.binary("sub", bits, m.whole(real.bits(math.sqrt(0.5))))
    k = m.e.binary("ashr", above, m.whole(real.mantissa))
    mantissa = m.e.binary("sub", bits, m.e.binary("shl", k, m.whole(real.mantissa)))
    f = m.sub(m.as_float(mantissa), m.number(1.0))
    k = m.e.select(tiny, m.e.binary("sub", k, m.whole(lift)), k)
    return m.e.cast("sitofp", k, real.element), f


def _logarithm_edges(m: _Maths, x: Typed, inside: Typed) -> Typed:
    """log of 0, negative numbers, infinity and NaN."""
    made = m.e.select(m.e.compare("oeq", x, m.number(math.inf)), x, inside)
    made = m.e.select(m.e.compare("oeq", x, m.number(0.0)), m.number(-math.inf), made)
    return m.e.select(m.e.compare("oge", x, m.number(0.0)), made, m.number(math.nan))


def _log(m: _Maths, x: Typed) -> Typed:
    k, f = _decomposed(m, x)
    high, low = m.real.split(*LN2)
    if m.real is F64:
        # The upper part keeps its last 11 bits clear, so that its product with k is exact.
        high, low = _short_ln2()
    tail = m.e.fma(k, m.number(low), _log1p_tail(m, f))
    return _logarithm_edges(m, x, m.add(m.e.fma(k, m.number(high), f), tail))


def _short_ln2() -> tuple[float, float]:
    bits = struct.unpack("<q", struct.pack("<d", LN2[0]))[0] & -(1 << 11)
    high = float(struct.unpack("<d", struct.pack("<q", bits))[0])
    return high, (LN2[0] - high) + LN2[1]


def _log1p_tail(m: _Maths, f: Typed) -> Typed:
    """log(1 + f) - f."""
    half_square = m.mul(m.mul(f, f), m.number(0.5))
    if m.real is F32:
        cube = m.mul(m.mul(f, f), f)
        return m.e.fma(cube, m.polynomial(f, c.LOG_TAIL), m.e.fneg(half_square))
    # With s = f / (2 + f), log(1 + f) = 2 atanh(s) = 2 s + s R, and 2 s = f - s f.
    s = m.e.floating("fdiv", f, m.add(f, m.number(2.0)))
    z = m.mul(s, s)
    r = m.mul(z, m.polynomial(z, c.ATANH_TAIL_64))
    return m.e.fma(s, m.add(half_square, r), m.e.fneg(half_square))


def _log2(m: _Maths, x: Typed) -> Typed:
    k, f = _decomposed(m, x)
    high, low = m.real.split(*LOG2_E)
    if m.real is F32:
        tail = m.e.fma(m.mul(f, f), m.polynomial(f, c.LOG2_TAIL), m.mul(f, m.number(low)))
    else:
        rest = _log1p_tail(m, f)
        tail = m.e.fma(rest, m.number(high), m.mul(f, m.number(low)))
    return _logarithm_edges(m, x, m.add(k, m.e.fma(f, m.number(high), tail)))


def _tanh(m: _Maths, x: Typed) -> Typed:
    """By polynomial below 0.625, else 1 - 2 / (e**2|x| + 1)."""
    size = m.absolute(x)
    z = m.mul(x, x)
    tail = m.polynomial(z, c.TANH_TAIL if m.real is F32 else c.TANH_TAIL_64)
    near = m.e.fma(m.mul(z, x), tail, x)
    limit = 10.0 if m.real is F32 else 20.0  # tanh is 1 from here
    doubled = m.clamp(m.add(size, size), 0.0, 2 * limit)
    denominator = m.add(_exp(m, doubled), m.number(1.0))
    far = m.sub(m.number(1.0), m.e.floating("fdiv", m.number(2.0), denominator))
    chosen = m.e.select(m.e.compare("olt", size, m.number(0.625)), near, far)
    return m.with_sign_of(chosen, x)


def _erf(m: _Maths, x: Typed) -> Typed:
    """By polynomial below 1, else 1 - exp(-p(|x|)) with p fitted to -log(erfc)."""
    size = m.absolute(x)
    z = m.mul(x, x)
    ratio = m.polynomial(z, c.ERF_RATIO if m.real is F32 else c.ERF_RATIO_64)
    near = m.e.fma(x, ratio, x)
    if m.real is F32:
        exponent = m.polynomial(m.clamp(size, 0.5, 4.0), c.ERFC_EXPONENT)
    else:
        t = m.e.fma(m.clamp(size, 0.5, 6.0), m.number(0.4), m.number(-1.4))
        exponent = m.polynomial(t, c.ERFC_EXPONENT_64)
    far = m.sub(m.number(1.0), _exp(m, m.e.fneg(exponent)))
    chosen = m.e.select(m.e.compare("olt", size, m.number(1.0)), near, far)
    return m.with_sign_of(chosen, x)


_FUNCTIONS: dict[str, Callable[[_Maths, Typed], Typed]] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "log2": _log2,
    "tanh": _tanh,
    "erf": _erf,
}

#: Every function that :func:`emit` knows.
NAMES = (*_FUNCTIONS, "sin", "cos")
