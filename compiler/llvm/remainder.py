"""The remainder x - trunc(x / y) * y without any rounding: C's fmod (C17, F.10.7.1), for scalars.

p below is the precision of the format, 24 bits of f32 and 53 of f64.

A quotient below 2**p takes one division and one fma. With t = trunc(|x| / |y|), rounding is monotonic and keeps
integers up to 2**p, so that the rounded quotient lies in [t, t + 1] and its integer part q is t or t + 1. |x| - q |y|
is at most |y|, and a multiple of y's last place (of half of it where q is 1 although |x| < |y|; then the difference is
below |y| / 2): the fma is exact. Where q is t + 1, its sum with |y| is the remainder itself, and exact too.

A larger quotient is divided on the mantissas, as integers, as many bits at a time as a word has beyond p.
"""

from __future__ import annotations

import math

from .reals import F32, F64, Arithmetic, Real
from .text import FunctionText
from .typed import Emitter, Typed, overload_name


def emit_remainder(e: Emitter, x: Typed, y: Typed) -> Typed:
    """A call of the module's own fmod for the type of ``x`` and ``y``, float or double."""
    name = f"deuteron_fmod_{overload_name(x.type)}"
    header = f"define internal {x.type} @{name}({x.type} %x, {x.type} %y) nounwind"
    module = e.function.module
    if all(f.header != header for f in module.functions):
        _define(FunctionText(module, header), F64 if x.type == "double" else F32)
    return Typed(x.type, e.function.op(f"call {x.type} @{name}({x}, {y})"))


def _define(function: FunctionText, real: Real) -> None:
    type = real.element
    m = Arithmetic(Emitter(function), real, type)
    function.label("entry")
    x, y = (m.absolute(Typed(type, name)) for name in ("%x", "%y"))
    quotient = m.e.floating("fdiv", x, y)
    small = m.e.compare("olt", quotient, m.number(2.0 ** (real.mantissa + 1)))
    function.do(f"br {small}, label %short, label %long")

    function.label("short")
    by_fma = _with_small_quotient(m, x, y, quotient)
    function.do("br label %done")

    # Here x >= 2**p |y|, or x is not finite, or y is 0, or one of them is NaN.
    function.label("long")
    defined = m.e.binary("and", m.e.compare("olt", x, m.number(math.inf)), m.e.compare("ogt", y, m.number(0.0)))
    function.do(f"br {defined}, label %prepare, label %done")
    function.label("prepare")
    by_division = _with_large_quotient(m, x, y)
    function.do("br label %done")

    function.label("done")
    arms = f"[ {by_fma.name}, %short ], [ {m.number(math.nan).name}, %long ], [ {by_division.name}, %divided ]"
    size = Typed(type, function.op(f"phi {type} {arms}"))
    function.do(f"ret {m.with_sign_of(size, Typed(type, '%x'))}")


def _with_small_quotient(m: Arithmetic, x: Typed, y: Typed, quotient: Typed) -> Typed:
    whole = m.e.intrinsic("trunc", quotient)
    rest = m.e.fma(m.e.fneg(whole), y, x)
    rest = m.e.select(m.e.compare("olt", rest, m.number(0.0)), m.add(rest, y), rest)
    return m.e.select(m.e.compare("oeq", y, m.number(math.inf)), x, rest)  # 0 * inf is NaN


def _with_large_quotient(m: Arithmetic, x: Typed, y: Typed) -> Typed:
    """Begins in the block "prepare", ends in "divided". x is normal, because it is at least 2**p |y|."""
    real, function = m.real, m.e.function
    word, one = real.integer, m.whole(1)
    fraction = m.whole((1 << real.mantissa) - 1)
    hidden = m.whole(1 << real.mantissa)

    def exponent(bits: Typed) -> Typed:
        return m.e.binary("lshr", bits, m.whole(real.mantissa))

    x_bits, y_bits = m.as_integer(x), m.as_integer(y)
    x_mantissa = m.e.binary("or", m.e.binary("and", x_bits, fraction), hidden)
    denormal = m.e.compare("ult", y_bits, hidden)
    y_mantissa = m.e.binary("and", y_bits, fraction)
    y_mantissa = m.e.select(denormal, y_mantissa, m.e.binary("or", y_mantissa, hidden))
    y_exponent = m.e.select(denormal, one, exponent(y_bits))
    distance = m.e.binary("sub", exponent(x_bits), y_exponent)
    function.do("br label %step")

    # rest * 2**left is congruent to x / (last place of y), modulo y's mantissa. A mantissa has p bits and rest is below
    # one, so that this many more fit into the word:
    most = m.whole(int(word[1:]) - real.mantissa - 1)
    function.label("step")
    function.do(f"%rest = phi {word} [ {x_mantissa.name}, %prepare ], [ %smaller, %step ]")
    function.do(f"%left = phi {word} [ {distance.name}, %prepare ], [ %fewer, %step ]")
    bits = m.e.intrinsic("umin", Typed(word, "%left"), most)
    shifted = m.e.binary("shl", Typed(word, "%rest"), bits)
    function.do(f"%smaller = urem {shifted}, {y_mantissa.name}")
    function.do(f"%fewer = sub {word} %left, {bits.name}")
    more = m.e.compare("ne", Typed(word, "%fewer"), m.whole(0))
    function.do(f"br {more}, label %step, label %divided")

    function.label("divided")
    rest = m.e.cast("uitofp", Typed(word, "%smaller"), real.element)
    return m.scaled(rest, m.e.binary("sub", y_exponent, m.whole(real.bias + real.mantissa)))
