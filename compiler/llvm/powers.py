"""Powers and logarithms to other bases: 10**x, log10 and x**y.

x**y needs log2(x) to more bits than the format has, because y * log2(x) may be a thousand times larger than its last
place: the logarithm is kept as a sum of two numbers (Dekker, "A floating-point technique for extending the available
precision", Numer. Math. 18, 1971).
"""

from __future__ import annotations

import math
import struct

from . import coefficients as c
from .reals import F32, F64, Arithmetic
from .typed import Typed

# As sums of two f64.
LN2 = (0.6931471805599453, 2.3190468138462996e-17)
LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
LOG10_2 = (0.3010299956639812, -2.8037281277851704e-18)
LOG10_E = (0.4342944819032518, 1.098319650216765e-17)
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
LN10 = 2.302585092994046


def decomposed(m: Arithmetic, x: Typed) -> tuple[Typed, Typed]:
    """(k, f) with x = 2**k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for positive finite x."""
    real = m.real
    lift = real.mantissa + 2
    tiny = m.e.compare("olt", x, m.number(2.0 ** (1 - real.bias)))
    x = m.e.select(tiny, m.mul(x, m.number(2.0**lift)), x)
    bits = m.as_integer(x)
    above = m.e.binary("sub", bits, m.whole(real.bits(math.sqrt(0.5))))
    exponent = m.e.binary("and", above, m.whole(-(1 << real.mantissa)))
    f = m.sub(m.as_float(m.e.binary("sub", bits, exponent)), m.number(1.0))
    lifted = m.e.select(tiny, m.number(-float(lift)), m.number(0.0))
    return m.e.fma(m.e.cast("sitofp", exponent, real.element), m.number(2.0**-real.mantissa), lifted), f


def logarithm_edges(m: Arithmetic, x: Typed, inside: Typed) -> Typed:
    """log of 0, negative numbers, infinity and NaN: there the hardware's approximation is right, but of negative
    numbers that it takes for 0."""
    if m.real is F32 and m.e.hardware:
        below = m.e.binary("sub", m.as_integer(x), m.whole(1))
        regular = m.e.compare("ult", below, m.whole(m.real.bits(math.inf) - 1))  # positive and finite
        edge = m.e.select(m.e.compare("olt", x, m.number(0.0)), m.number(math.nan), m.e.hardware.log2(x))
        return m.e.select(regular, inside, edge)
    made = m.e.select(m.e.compare("oeq", x, m.number(math.inf)), x, inside)
    made = m.e.select(m.e.compare("oeq", x, m.number(0.0)), m.number(-math.inf), made)
    return m.e.select(m.e.compare("oge", x, m.number(0.0)), made, m.number(math.nan))


def short(value: tuple[float, float]) -> tuple[float, float]:
    """A sum of two f64 whose first part keeps its last 11 bits clear: its product with an exponent is exact."""
    bits = struct.unpack("<q", struct.pack("<d", value[0]))[0] & -(1 << 11)
    high = float(struct.unpack("<d", struct.pack("<q", bits))[0])
    return high, (value[0] - high) + value[1]


def log1p_tail(m: Arithmetic, f: Typed) -> Typed:
    """log(1 + f) - f."""
    if m.real is F32:
        return m.mul(m.mul(f, f), m.polynomial(f, (-0.5, *c.LOG_TAIL)))
    half_square = m.mul(m.mul(f, f), m.number(0.5))
    # With s = f / (2 + f), log(1 + f) = 2 atanh(s) = 2 s + s R, and 2 s = f - s f.
    s = m.e.floating("fdiv", f, m.add(f, m.number(2.0)))
    z = m.mul(s, s)
    r = m.mul(z, m.polynomial(z, c.ATANH_TAIL_64))
    return m.e.fma(s, m.add(half_square, r), m.e.fneg(half_square))


def log10(m: Arithmetic, x: Typed) -> Typed:
    """k log10(2) + log(1 + f) log10(e)."""
    k, f = decomposed(m, x)
    part, lost = m.times_constant(f, log1p_tail(m, f), LOG10_E)
    high, low = short(LOG10_2) if m.real is F64 else _short_float(LOG10_2)
    rest = m.e.fma(k, m.number(low), lost)
    return logarithm_edges(m, x, m.add(m.e.fma(k, m.number(high), part), rest))


def _short_float(value: tuple[float, float]) -> tuple[float, float]:
    """As :func:`short`, for f32 and exponents of up to 8 bits."""
    high = math.ldexp(round(math.ldexp(value[0], 14)), -14)
    return high, value[0] - high


def exp10(m: Arithmetic, x: Typed) -> Typed:
    """10**x = 2**n e**g with n = round(x log2(10)), g = (x - n log10(2)) ln 10."""
    inside = m.clamp(x, *((-46.0, 39.0) if m.real is F32 else (-325.0, 309.0)))
    n, exponent = m.rounded(inside, LOG2_E[0] * LN10)
    high, low = m.real.split(*LOG10_2)
    r = m.e.fma(n, m.number(-high), inside)
    r = m.e.fma(n, m.number(-low), r)
    g = m.mul(r, m.number(LN10))
    return m.scaled(m.polynomial(g, c.EXP if m.real is F32 else c.EXP_64), exponent)


# x**y --------------------------------------------------------------------------------------------------------


def power(m: Arithmetic, x: Typed, y: Typed) -> Typed:
    """|x|**y by logarithm, with the sign and the special values of C's pow (C17, F.10.4.4)."""
    size = m.absolute(x)
    one, zero = m.number(1.0), m.number(0.0)
    made = _exp2_of_two(m, *_scaled_logarithm(m, size, y))
    made = m.e.select(m.e.compare("oeq", size, one), one, made)  # also (-1)**inf
    whole = m.e.compare("oeq", m.e.intrinsic("trunc", y), y)
    half = m.mul(y, m.number(0.5))
    odd = m.e.binary("and", whole, m.e.compare("une", m.e.intrinsic("trunc", half), half))
    signed = m.with_sign_of(made, x)
    made = m.e.select(odd, signed, made)
    finite = m.e.compare("one", size, m.number(math.inf))
    broken = m.e.binary("and", m.e.compare("olt", x, zero), finite)
    broken = m.e.binary("and", broken, m.e.compare("une", m.e.intrinsic("trunc", y), y))
    broken = m.e.binary("or", broken, m.e.compare("uno", x, y))
    made = m.e.select(broken, m.number(math.nan), made)
    always = m.e.binary("or", m.e.compare("oeq", y, zero), m.e.compare("oeq", x, one))
    return m.e.select(always, one, made)


def _scaled_logarithm(m: Arithmetic, x: Typed, y: Typed) -> tuple[Typed, Typed]:
    """y log2(x) for x >= 0 as a sum of two; the second may be NaN where the first is beyond every exponent."""
    high, low = _log2_of_two(m, x)
    high = m.e.select(m.e.compare("oeq", x, m.number(math.inf)), x, high)
    high = m.e.select(m.e.compare("oeq", x, m.number(0.0)), m.number(-math.inf), high)
    product, lost = m.product_of_two(y, high)
    return product, m.e.fma(y, low, lost)


def _log2_of_two(m: Arithmetic, x: Typed) -> tuple[Typed, Typed]:
    """log2(x) as a sum of two, for positive finite x."""
    k, f = decomposed(m, x)
    total, lost = _log1p_of_two_f32(m, f) if m.real is F32 else _log1p_of_two(m, f)
    part, part_low = m.times_constant(total, lost, LOG2_E)
    total, lost = m.sum_of_two(k, part)
    return m.sum_of_two(total, m.add(lost, part_low))


def _log1p_of_two_f32(m: Arithmetic, f: Typed) -> tuple[Typed, Typed]:
    """log(1 + f) of f32: 2 atanh(s/2) = s + s**3 (1/12 + ...) with s = 2 f / (2 + f), a sum of two. What is beyond s is
    below 0.01 of it: one number has it, but for what s**2 and s are rounded by."""
    s, s_low = _ratio(m, m.add(f, f), f)
    z, z_low = m.product_of_two(s, s)
    first, *others = c.TWICE_ATANH_TAIL
    tail = m.e.fma(z, m.number(first), m.mul(m.mul(z, z), m.polynomial(z, others)))
    total = m.e.fma(s, tail, s)
    lost = m.e.fma(s, tail, m.sub(s, total))
    lost = m.e.fma(m.mul(s, m.number(first)), z_low, lost)
    return total, m.e.fma(s_low, m.e.fma(z, m.number(0.25), m.number(1.0)), lost)


def _log1p_of_two(m: Arithmetic, f: Typed) -> tuple[Typed, Typed]:
    """log(1 + f) of f64. With s = f / (2 + f) it is 2 atanh(s) = 2 s + 2/3 s**3 + s**5 (2/5 + ...); the first two terms
    are sums of two."""
    s, s_low = _ratio(m, f, f)
    z, z_low = m.product_of_two(s, s)
    z_low = m.e.fma(m.mul(s, m.number(2.0)), s_low, z_low)
    cube, cube_low = m.product_of_two(s, z)
    rest = m.mul(m.mul(cube, z), m.polynomial(z, c.ATANH_REST_64))
    cube_low = m.add(cube_low, m.e.fma(s, z_low, m.mul(s_low, z)))
    third, third_low = m.times_constant(cube, cube_low, TWO_THIRDS)
    total, lost = m.sum_of_two(m.mul(s, m.number(2.0)), third)
    return total, m.add(lost, m.add(m.e.fma(s_low, m.number(2.0), third_low), rest))


def _ratio(m: Arithmetic, above: Typed, f: Typed) -> tuple[Typed, Typed]:
    """above / (2 + f) as a sum of two: the second makes up for what the reciprocal is off by, so one division is
    enough."""
    below, below_low = m.sum_of_two(m.number(2.0), f)
    reciprocal = m.e.reciprocal(below) if m.real is F32 else m.e.floating("fdiv", m.number(1.0), below)
    s = m.mul(above, reciprocal)
    left = m.e.fma(m.e.fneg(s), below, above)
    return s, m.mul(m.e.fma(m.e.fneg(s), below_low, left), reciprocal)


def _exp2_of_two(m: Arithmetic, x: Typed, low: Typed) -> Typed:
    """2**(x + low); ``low`` does not count where x is beyond every exponent."""
    limits = (-151.0, 129.0) if m.real is F32 else (-1076.0, 1025.0)
    inside = m.clamp(x, *limits)
    low = m.e.select(m.e.compare("oeq", inside, x), low, m.number(0.0))
    n, exponent = m.rounded(inside, 1.0)
    r = m.add(m.sub(inside, n), low)
    return m.scaled(m.polynomial(r, c.EXP2 if m.real is F32 else c.EXP2_64), exponent)
