"""Sine and cosine of any argument.

Up to :data:`LIMIT` the multiple of pi/2 is taken off in three parts (Cody and Waite, "Software Manual for the
Elementary Functions", 1980), with fma. Larger arguments are multiplied by the digits of 2/pi that matter (Payne and
Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983), lane by lane and out of line.
"""

from __future__ import annotations

from . import coefficients as c
from .text import FunctionText
from .typed import Emitter, Typed, constant, overload_name

#: Largest argument of the short reduction: k * (error of three parts of pi/2) stays below 2**-60.
LIMIT = {"float": 32768.0, "double": 1048576.0}

# pi/2 as a sum: three f32, three f64.
_PARTS = {
    "float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100059819e-15),
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}
_LARGE = "deuteron_reduce_large"
_TABLE = "deuteron_two_over_pi"


def emit_sine(e: Emitter, x: Typed, *, cosine: bool) -> Typed:
    """A call of the module's own sin or cos for the type of ``x``."""
    name = f"deuteron_{'cos' if cosine else 'sin'}_{overload_name(x.type)}"
    header = f"define internal {x.type} @{name}({x.type} %x) nounwind"
    module = e.function.module
    if all(f.header != header for f in module.functions):
        _define(FunctionText(module, header), x.type, cosine=cosine)
    return Typed(x.type, e.function.op(f"call {x.type} @{name}({x})"))


def _define(function: FunctionText, type: str, *, cosine: bool) -> None:
    e = Emitter(function)
    x = Typed(type, "%x")
    limit = constant(type, LIMIT[x.element])
    function.label("entry")
    # A large argument would overflow the quadrant; 0 gives it a harmless one until the slow way takes over.
    large = e.compare("ugt", e.intrinsic("fabs", x), limit)
    small = e.select(large, constant(type, 0.0), x)
    quadrant, rest = _reduce_small(e, small)
    fast = _by_quadrant(e, quadrant, rest, cosine=cosine)
    if not cosine:  # sin(-0) is -0
        fast = e.select(e.compare("oeq", x, constant(type, 0.0)), x, fast)
    some = large
    if large.lanes:
        reduced = function.call("i1", f"llvm.vector.reduce.or.v{large.lanes}i1", [(large.type, large.name)])
        some = Typed("i1", reduced)
    function.do(f"br {some}, label %slow, label %done")
    function.label("slow")
    slow = _one_by_one(e, x, fast, large, cosine=cosine)
    function.do("br label %done")
    function.label("done")
    result = function.op(f"phi {type} [ {fast.name}, %entry ], [ {slow.name}, %{slow_end(x)} ]")
    function.do(f"ret {type} {result}")


def slow_end(x: Typed) -> str:
    """The block in which the slow way ends."""
    return "after" if x.lanes else "slow"


def _one_by_one(e: Emitter, x: Typed, fast: Typed, large: Typed, *, cosine: bool) -> Typed:
    """Large lanes by the long reduction, in a loop for vectors."""
    function = e.function
    if not x.lanes:
        return _large_sine(e, x, cosine=cosine)
    function.do("br label %lane")
    function.label("lane")
    count = f"{x.lanes}"
    function.do("%i = phi i32 [ 0, %slow ], [ %following, %next ]")
    function.do(f"%sofar = phi {x.type} [ {fast.name}, %slow ], [ %merged, %next ]")
    flag = function.op(f"extractelement {large}, i32 %i")
    function.do(f"br i1 {flag}, label %long, label %next")
    function.label("long")
    one = Typed(x.element, function.op(f"extractelement {x}, i32 %i"))
    made = _large_sine(e, one, cosine=cosine)
    put = function.op(f"insertelement {x.type} %sofar, {made}, i32 %i")
    function.do("br label %next")
    function.label("next")
    function.do(f"%merged = phi {x.type} [ %sofar, %lane ], [ {put}, %long ]")
    function.do("%following = add i32 %i, 1")
    more = function.op(f"icmp ne i32 %following, {count}")
    function.do(f"br i1 {more}, label %lane, label %after")
    function.label("after")
    return Typed(x.type, "%merged")


def _reduce_small(e: Emitter, x: Typed) -> tuple[Typed, Typed]:
    """(quadrant as an integer, x - quadrant * pi/2)."""
    single = x.element == "float"
    magic = constant(x.type, 1.5 * 2.0 ** (23 if single else 52))
    shifted = e.fma(x, constant(x.type, 0.6366197723675814), magic)
    k = e.floating("fsub", shifted, magic)
    for part in _PARTS[x.element]:
        x = e.fma(k, constant(x.type, -part), x)
    return e.cast("bitcast", shifted, "i32" if single else "i64"), x


def _by_quadrant(e: Emitter, quadrant: Typed, r: Typed, *, cosine: bool) -> Typed:
    """sin or cos of r + quadrant * pi/2, |r| <= pi/4."""
    single = r.element == "float"
    z = e.floating("fmul", r, r)
    sine = e.fma(e.floating("fmul", z, r), _polynomial(e, z, c.SIN_TAIL if single else c.SIN_TAIL_64), r)
    # 1 - z/2 is rounded; what it lost is added back with the small terms.
    half = e.floating("fmul", z, constant(z.type, 0.5))
    one = constant(z.type, 1.0)
    upper = e.floating("fsub", one, half)
    lost = e.floating("fsub", e.floating("fsub", one, upper), half)
    tail = _polynomial(e, z, c.COS_TAIL if single else c.COS_TAIL_64)
    other = e.floating("fadd", upper, e.fma(e.floating("fmul", z, z), tail, lost))
    if cosine:
        quadrant = e.binary("add", quadrant, constant(quadrant.type, 1))
    odd = e.binary("and", quadrant, constant(quadrant.type, 1))
    swap = e.compare("ne", odd, constant(quadrant.type, 0))
    made = e.select(swap, other, sine)
    second = e.binary("and", quadrant, constant(quadrant.type, 2))
    negative = e.compare("ne", second, constant(quadrant.type, 0))
    return e.select(negative, e.fneg(made), made)


def _polynomial(e: Emitter, x: Typed, coefficients: tuple[float, ...]) -> Typed:
    total = constant(x.type, coefficients[-1])
    for value in reversed(coefficients[:-1]):
        total = e.fma(total, x, constant(x.type, value))
    return total


def _large_sine(e: Emitter, x: Typed, *, cosine: bool) -> Typed:
    """sin or cos of one large argument, computed in f64."""
    module = e.function.module
    header = f"define internal {{ i64, double }} @{_LARGE}(double %x) noinline nounwind"
    if all(f.header != header for f in module.functions):
        _define_large(FunctionText(module, header))
    wide = e.cast("fpext", x, "double")
    pair = e.function.op(f"call {{ i64, double }} @{_LARGE}({wide})")
    quadrant = Typed("i64", e.function.op(f"extractvalue {{ i64, double }} {pair}, 0"))
    rest = Typed("double", e.function.op(f"extractvalue {{ i64, double }} {pair}, 1"))
    return e.cast("fptrunc", _by_quadrant(e, quadrant, rest, cosine=cosine), x.element)


def _define_large(function: FunctionText) -> None:
    """x = M 2**E, M an integer: multiply M by the fraction of 2**(E-2) * 2/pi to 192 bits; the top two bits of the
    fraction of the product are the quadrant.
    """
    e = Emitter(function)
    table = (0, *c.TWO_OVER_PI)
    words = ", ".join(str(constant("i64", digit)) for digit in table)
    function.module.globals[_TABLE] = f"@{_TABLE} = private unnamed_addr constant [{len(table)} x i64] [{words}]"

    def i64(value: int) -> Typed:
        return constant("i64", value)

    function.label("entry")
    bits = e.cast("bitcast", Typed("double", "%x"), "i64")
    exponent = e.binary("and", e.binary("lshr", bits, i64(52)), i64(0x7FF))
    finite = e.compare("ne", exponent, i64(0x7FF))
    mantissa = e.binary("or", e.binary("and", bits, i64((1 << 52) - 1)), i64(1 << 52))
    # Bit position in 2/pi where the fraction of 2**(E-2) * 2/pi begins; at least 0 because |x| is large. The table has
    # a leading zero word for positions below 0.
    start = e.binary("sub", exponent, i64(1075 + 2 - 64))
    start = e.select(finite, start, i64(64))
    word = e.binary("lshr", start, i64(6))
    shift = e.binary("and", start, i64(63))
    digits = []
    for k in range(4):
        place = e.offset(Typed("ptr", f"@{_TABLE}"), e.binary("add", word, i64(k)), "i64")
        digits.append(e.load("i64", place, 8))
    parts = [e.intrinsic("fshl", digits[k], digits[k + 1], shift) for k in range(3)]
    wide = e.cast("zext", mantissa, "i128")
    low, middle = (e.binary("mul", wide, e.cast("zext", p, "i128")) for p in (parts[2], parts[1]))
    sum128 = e.binary("add", middle, e.binary("lshr", low, constant("i128", 64)))
    top = e.binary("mul", mantissa, parts[0])
    top = e.binary("add", top, e.cast("trunc", e.binary("lshr", sum128, constant("i128", 64)), "i64"))
    below = e.cast("trunc", sum128, "i64")
    quadrant = e.binary("lshr", top, i64(62))
    fraction = e.intrinsic("fshl", top, below, i64(2))
    rest = e.binary("shl", below, i64(2))
    # As a signed fraction in [-1/2, 1/2) the upper half belongs to the next quadrant.
    quadrant = e.binary("add", quadrant, e.binary("lshr", fraction, i64(63)))
    value = e.fma(
        e.cast("uitofp", rest, "double"),
        constant("double", 2.0**-64),
        e.cast("sitofp", fraction, "double"),
    )
    r = e.floating("fmul", value, constant("double", 2.0**-64 * 1.5707963267948966))
    negative = e.compare("slt", bits, i64(0))
    quadrant = e.select(negative, e.binary("sub", i64(0), quadrant), quadrant)
    r = e.select(negative, e.fneg(r), r)
    r = e.select(finite, r, constant("double", float("nan")))
    pair = function.op(f"insertvalue {{ i64, double }} poison, {quadrant}, 0")
    pair = function.op(f"insertvalue {{ i64, double }} {pair}, {r}, 1")
    function.do(f"ret {{ i64, double }} {pair}")
