"""Mathematical functions in arithmetic that every target has, for f32 and f64, scalar or vector.

exp, exp2, exp10, log, log2, log10, sin, cos, tan, atan, atan2, tanh, erf and pow, within 2 units in the last place (tan
within 3, erf of f64 within 4; tests/compiler/llvm and tests/compiler/arithmetic measure them), with NaN, infinities,
zeros and denormals as IEEE 754 and C ask. The polynomials are fitted by development/minimax.py.
"""

from __future__ import annotations

from collections.abc import Callable

from . import coefficients as c
from .angles import arc_tangent, arc_tangent_of_two
from .powers import LN2, LOG2_E, decomposed, exp10, log1p_tail, log10, logarithm_edges, power, short
from .reals import F32, F64, Arithmetic
from .trigonometry import emit_sine, emit_tangent
from .typed import Emitter, Typed


def emit(e: Emitter, name: str, x: Typed, *others: Typed) -> Typed:
    """``name`` of ``x`` (atan2 and pow: of two operands), floats or doubles or vectors of them."""
    plain = Emitter(e.function, hardware=e.hardware)  # products and sums here are rounded where it says so
    real = F64 if x.element == "double" else F32
    if name in ("sin", "cos"):
        return emit_sine(plain, x, cosine=name == "cos")
    if name == "tan":
        return emit_tangent(plain, x)
    m = Arithmetic(plain, real, x.type)
    return _OF_TWO[name](m, x, *others) if others else _FUNCTIONS[name](m, x)


def _exp(m: Arithmetic, x: Typed) -> Typed:
    """e**x = 2**n e**r with r = x - n ln 2, |r| <= ln 2 / 2."""
    x = m.clamp(x, *((-104.0, 89.0) if m.real is F32 else (-746.0, 710.0)))
    high, low = m.real.split(*LN2)
    n, exponent = m.rounded(x, LOG2_E[0])
    r = m.e.fma(n, m.number(-high), x)
    r = m.e.fma(n, m.number(-low), r)
    return m.scaled(m.polynomial(r, c.EXP if m.real is F32 else c.EXP_64), exponent)


def _exp2(m: Arithmetic, x: Typed) -> Typed:
    """2**x = 2**n 2**r with |r| <= 1/2, r exact."""
    x = m.clamp(x, *((-151.0, 129.0) if m.real is F32 else (-1076.0, 1025.0)))
    n, exponent = m.rounded(x, 1.0)
    r = m.sub(x, n)
    return m.scaled(m.polynomial(r, c.EXP2 if m.real is F32 else c.EXP2_64), exponent)


def _near_exp2(m: Arithmetic, x: Typed) -> Typed:
    """2**x of f32, within 2 units in the last place; 0 where the result is below the normal numbers."""
    return m.e.hardware.exp2(x) if m.e.hardware else _exp2(m, x)


def _log(m: Arithmetic, x: Typed) -> Typed:
    k, f = decomposed(m, x)
    if m.real is F32:  # what log(1 + f) is rounded by hardly counts beside k ln 2, and nor does what f32 lacks of ln 2
        part = m.e.fma(m.mul(f, f), m.polynomial(f, (-0.5, *c.LOG_TAIL)), f)
        return logarithm_edges(m, x, m.e.fma(k, m.number(LN2[0]), part))
    # The upper part keeps its last 11 bits clear, so that its product with k is exact.
    high, low = short(LN2)
    tail = m.e.fma(k, m.number(low), log1p_tail(m, f))
    return logarithm_edges(m, x, m.add(m.e.fma(k, m.number(high), f), tail))


def _log2(m: Arithmetic, x: Typed) -> Typed:
    k, f = decomposed(m, x)
    high, low = m.real.split(*LOG2_E)
    if m.real is F32:
        tail = m.e.fma(m.mul(f, f), m.polynomial(f, c.LOG2_TAIL), m.mul(f, m.number(low)))
    else:
        rest = log1p_tail(m, f)
        tail = m.e.fma(rest, m.number(high), m.mul(f, m.number(low)))
    return logarithm_edges(m, x, m.add(k, m.e.fma(f, m.number(high), tail)))


def _tanh(m: Arithmetic, x: Typed) -> Typed:
    """By polynomial for small arguments, else 1 - 2 / (e**2|x| + 1), where the exponential counts for less and less."""
    size = m.absolute(x)
    z = m.mul(x, x)
    tail = m.polynomial(z, c.TANH_TAIL if m.real is F32 else c.TANH_TAIL_64)
    near = m.e.fma(m.mul(z, x), tail, x)
    one, two = m.number(1.0), m.number(2.0)
    if m.real is F32:
        power = _near_exp2(m, m.mul(size, m.number(2 * LOG2_E[0])))
        far = m.e.fma(m.number(-2.0), m.e.reciprocal(m.add(power, one)), one)
    else:
        doubled = m.clamp(m.add(size, size), 0.0, 40.0)  # from 20 on tanh is 1
        far = m.sub(one, m.e.floating("fdiv", two, m.add(_exp(m, doubled), one)))
    beyond = m.e.compare("oge", size, m.number(1.09375 if m.real is F32 else 0.625))
    return m.with_sign_of(m.e.select(beyond, far, near), x)


def _erf(m: Arithmetic, x: Typed) -> Typed:
    """By polynomial for small arguments, else 1 - erfc(|x|), the logarithm of erfc being a polynomial. For f32 that is
    where erfc is below 1/4: 2 units of it are half of one of the result.
    """
    size = m.absolute(x)
    z = m.mul(x, x)
    ratio = m.polynomial(z, c.ERF_RATIO if m.real is F32 else c.ERF_RATIO_64)
    near = m.e.fma(x, ratio, x)
    if m.real is F32:
        four_times = _near_exp2(m, m.polynomial(m.e.intrinsic("minnum", size, m.number(4.0)), c.ERFC_LOG2))
        far = m.e.fma(four_times, m.number(-0.25), m.number(1.0))
    else:
        t = m.e.fma(m.clamp(size, 0.5, 6.0), m.number(0.4), m.number(-1.4))
        far = m.sub(m.number(1.0), _exp(m, m.e.fneg(m.polynomial(t, c.ERFC_EXPONENT_64))))
    beyond = m.e.compare("oge", size, m.number(0.8203125 if m.real is F32 else 1.0))
    return m.with_sign_of(m.e.select(beyond, far, near), x)


_FUNCTIONS: dict[str, Callable[[Arithmetic, Typed], Typed]] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "log2": _log2,
    "tanh": _tanh,
    "erf": _erf,
    "exp10": exp10,
    "log10": log10,
    "atan": arc_tangent,
}
_OF_TWO: dict[str, Callable[[Arithmetic, Typed, Typed], Typed]] = {"atan2": arc_tangent_of_two, "pow": power}

#: Every function of one operand that :func:`emit` knows.
NAMES = (*_FUNCTIONS, "sin", "cos", "tan")
