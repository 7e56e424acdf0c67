"""Arc tangents. Beyond 1 the argument is inverted, and of f64 beyond tan(pi/8) turned by pi/4; then a polynomial."""

from __future__ import annotations

import math

from . import coefficients as c
from .reals import F32, Arithmetic
from .typed import Typed

# As sums of two f64.
_PI = (3.141592653589793, 1.2246467991473532e-16)
_HALF_PI = (_PI[0] / 2, _PI[1] / 2)
_QUARTER_PI = (_PI[0] / 4, _PI[1] / 4)
_TAN_PI_8 = math.sqrt(2) - 1


def arc_tangent(m: Arithmetic, x: Typed) -> Typed:
    """atan(x)."""
    size = m.absolute(x)
    steep = m.e.compare("ogt", size, m.number(1.0))
    ratio = m.e.select(steep, _inverse(m, size), size)
    angle = _up_to_one(m, ratio)
    return m.with_sign_of(m.e.select(steep, _taken_from(m, _HALF_PI, angle), angle), x)


def arc_tangent_of_two(m: Arithmetic, y: Typed, x: Typed) -> Typed:
    """The angle of the point (x, y), with the special values of C's atan2 (C17, F.10.1.4)."""
    height, breadth = m.absolute(y), m.absolute(x)
    steep = m.e.compare("ogt", height, breadth)
    above = m.e.select(steep, breadth, height)
    below = m.e.select(steep, height, breadth)
    ratio = m.e.floating("fdiv", above, below)
    # 0/0 is a point on the axis, inf/inf one on the diagonal.
    ratio = m.e.select(m.e.compare("oeq", below, m.number(0.0)), below, ratio)
    ratio = m.e.select(m.e.compare("oeq", above, m.number(math.inf)), m.number(1.0), ratio)
    angle = _up_to_one(m, ratio)
    angle = m.e.select(steep, _taken_from(m, _HALF_PI, angle), angle)
    left = m.e.compare("olt", m.with_sign_of(m.number(1.0), x), m.number(0.0))
    angle = m.e.select(left, _taken_from(m, _PI, angle), angle)
    angle = m.e.select(m.e.compare("uno", y, x), m.number(math.nan), angle)
    return m.with_sign_of(angle, y)


def _inverse(m: Arithmetic, x: Typed) -> Typed:
    """1 / x of x >= 1. Newton's step makes up for the hardware's reciprocal, and would make NaN of infinity."""
    if m.real is not F32 or not m.e.hardware:
        return m.e.floating("fdiv", m.number(1.0), x)
    x = m.e.intrinsic("minnum", x, m.number(2.0**100))
    made = m.e.hardware.reciprocal(x)
    return m.e.fma(m.e.fma(m.e.fneg(x), made, m.number(1.0)), made, made)


def _up_to_one(m: Arithmetic, t: Typed) -> Typed:
    """atan(t) for 0 <= t <= 1."""
    if m.real is F32:
        z = m.mul(t, t)
        return m.e.fma(m.mul(z, t), m.polynomial(z, c.ATAN_TAIL), t)
    one, zero = m.number(1.0), m.number(0.0)
    turned = m.e.compare("ogt", t, m.number(_TAN_PI_8))
    r = m.e.select(turned, m.e.floating("fdiv", m.sub(t, one), m.add(t, one)), t)
    z = m.mul(r, r)
    tail = m.mul(m.mul(z, r), m.polynomial(z, c.ATAN_TAIL_64))
    high, low = m.real.split(*_QUARTER_PI)
    start = m.e.select(turned, m.number(high), zero)
    tail = m.add(tail, m.e.select(turned, m.number(low), zero))
    return m.add(start, m.add(r, tail))


def _taken_from(m: Arithmetic, whole: tuple[float, float], angle: Typed) -> Typed:
    high, low = m.real.split(*whole)
    return m.sub(m.number(high), m.sub(angle, m.number(low)))
