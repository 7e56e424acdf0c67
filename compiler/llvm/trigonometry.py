"""Sine, cosine and tangent of any argument.

Up to :data:`LIMIT` the multiple of pi/2 is taken off in three parts (Cody and Waite, "Software Manual for the
Elementary Functions", 1980), with fma. Larger arguments are multiplied by the digits of 2/pi that matter (Payne and
Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983), lane by lane and out of line.
"""

from __future__ import annotations

from . import coefficients as c
from .text import FunctionText
from .typed import Emitter, Typed, constant, overload_name, with_element

#: Largest argument of the short reduction: k * (error of three parts of pi/2) stays below 2**-58.
LIMIT = {"float": 32768.0, "double": 1048576.0}

# pi/2 as a sum: three f32, three f64. All are positive: what is left of -0 is -0.
_PARTS = {
    "float": (1.570796251296997, 7.549789415861596e-08, 5.390302953474238e-15),
    "double": (1.5707963267948966, 6.123233995736765e-17, 1.082856673921914e-32),
}
_LARGE = "deuteron_reduce_large"
_TABLE = "deuteron_two_over_pi"


def emit_sine(e: Emitter, x: Typed, *, cosine: bool) -> Typed:
    """sin(x) or cos(x)."""
    quadrant, r = _reduced(e, x)
    sine, other = _sine(e, r), _cosine(e, r)
    if cosine:
        quadrant = e.binary("add", quadrant, constant(quadrant.type, 1))
    made = e.select(_has(e, quadrant, 1), other, sine)
    return e.select(_has(e, quadrant, 2), e.fneg(made), made)


def emit_tangent(e: Emitter, x: Typed) -> Typed:
    """tan(x): of f32 a polynomial, or what -1 is divided by it."""
    quadrant, r = _reduced(e, x)
    odd = _has(e, quadrant, 1)
    if x.element == "float":
        z = e.floating("fmul", r, r)
        made = e.fma(e.floating("fmul", z, r), _polynomial(e, z, c.TAN_TAIL), r)
        return e.select(odd, e.fneg(e.reciprocal(made)), made)
    sine, other = _sine(e, r), _cosine(e, r)
    return e.floating("fdiv", e.select(odd, other, sine), e.select(odd, e.fneg(sine), other))


def _reduced(e: Emitter, x: Typed) -> tuple[Typed, Typed]:
    """(quadrant as an integer, of which the last two bits count; x - quadrant * pi/2), by a call of the module's own
    function for the type of ``x``: where sine and cosine of one number are computed, LLVM calls it once."""
    integer = with_element(x.type, "i32" if x.element == "float" else "i64")
    pair = f"{{ {integer}, {x.type} }}"
    name = f"deuteron_reduce_{overload_name(x.type)}"
    header = f"define internal {pair} @{name}({x.type} %x) nounwind willreturn memory(none)"
    module = e.function.module
    if all(f.header != header for f in module.functions):
        _define(FunctionText(module, header), x.type, integer)
    called = e.function.op(f"call {pair} @{name}({x})")
    return _parts(e, pair, called)


def _parts(e: Emitter, pair: str, value: str) -> tuple[Typed, Typed]:
    types = pair.strip("{} ").rsplit(", ", 1)
    first, second = (e.function.op(f"extractvalue {pair} {value}, {i}") for i in range(2))
    return Typed(types[0], first), Typed(types[1], second)


def _pair(e: Emitter, first: Typed, second: Typed) -> Typed:
    type = f"{{ {first.type}, {second.type} }}"
    value = e.function.op(f"insertvalue {type} poison, {first}, 0")
    return Typed(type, e.function.op(f"insertvalue {type} {value}, {second}, 1"))


def _define(function: FunctionText, type: str, integer: str) -> None:
    e = Emitter(function)
    x = Typed(type, "%x")
    function.label("entry")
    fast = _reduce_small(e, x)
    large = e.compare("ogt", e.intrinsic("fabs", x), constant(type, LIMIT[x.element]))
    some = large
    if large.lanes:
        reduced = function.call("i1", f"llvm.vector.reduce.or.v{large.lanes}i1", [(large.type, large.name)])
        some = Typed("i1", reduced)
    function.do(f"br {some}, label %slow, label %done")
    function.label("slow")
    slow = _one_by_one(e, x, fast, large) if x.lanes else _reduce_large(e, x)
    function.do("br label %done")
    function.label("done")
    end = "after" if x.lanes else "slow"
    made = [
        Typed(quick.type, function.op(f"phi {quick.type} [ {quick.name}, %entry ], [ {long.name}, %{end} ]"))
        for quick, long in zip(fast, slow, strict=True)
    ]
    function.do(f"ret {_pair(e, *made)}")


def _one_by_one(e: Emitter, x: Typed, fast: tuple[Typed, Typed], large: Typed) -> tuple[Typed, Typed]:
    """Large lanes by the long reduction, in a loop."""
    function = e.function
    function.do("br label %lane")
    function.label("lane")
    function.do("%i = phi i32 [ 0, %slow ], [ %following, %next ]")
    sofar = [
        Typed(quick.type, function.op(f"phi {quick.type} [ {quick.name}, %slow ], [ %merged{n}, %next ]"))
        for n, quick in enumerate(fast)
    ]
    flag = function.op(f"extractelement {large}, i32 %i")
    function.do(f"br i1 {flag}, label %long, label %next")
    function.label("long")
    one = _reduce_large(e, Typed(x.element, function.op(f"extractelement {x}, i32 %i")))
    put = [function.op(f"insertelement {all}, {part}, i32 %i") for all, part in zip(sofar, one, strict=True)]
    function.do("br label %next")
    function.label("next")
    for n, (before, after) in enumerate(zip(sofar, put, strict=True)):
        function.do(f"%merged{n} = phi {before.type} [ {before.name}, %lane ], [ {after}, %long ]")
    function.do("%following = add i32 %i, 1")
    more = function.op(f"icmp ne i32 %following, {x.lanes}")
    function.do(f"br i1 {more}, label %lane, label %after")
    function.label("after")
    return Typed(fast[0].type, "%merged0"), Typed(fast[1].type, "%merged1")


def _reduce_small(e: Emitter, x: Typed) -> tuple[Typed, Typed]:
    """(quadrant as an integer, x - quadrant * pi/2)."""
    single = x.element == "float"
    magic = constant(x.type, 1.5 * 2.0 ** (23 if single else 52))
    shifted = e.fma(x, constant(x.type, 0.6366197723675814), magic)
    k = e.floating("fsub", shifted, magic)
    for part in _PARTS[x.element]:
        x = e.fma(k, constant(x.type, -part), x)
    return e.cast("bitcast", shifted, "i32" if single else "i64"), x


def _has(e: Emitter, quadrant: Typed, bit: int) -> Typed:
    """i1: whether ``bit`` of the quadrant is set."""
    found = e.binary("and", quadrant, constant(quadrant.type, bit))
    return e.compare("ne", found, constant(quadrant.type, 0))


def _sine(e: Emitter, r: Typed) -> Typed:
    """sin(r) of |r| <= pi/4."""
    z = e.floating("fmul", r, r)
    cube = e.fma(z, r, constant(r.type, 0.0))  # of -0 it is 0: it is multiplied by negative numbers, and -0 - 0 is -0
    return e.fma(cube, _polynomial(e, z, c.SIN_TAIL if r.element == "float" else c.SIN_TAIL_64), r)


def _cosine(e: Emitter, r: Typed) -> Typed:
    """cos(r) of |r| <= pi/4."""
    z = e.floating("fmul", r, r)
    if r.element == "float":
        return _polynomial(e, z, (1.0, -0.5, *c.COS_TAIL))
    # 1 - z/2 is rounded; what it lost is added back with the small terms.
    half = e.floating("fmul", z, constant(z.type, 0.5))
    one = constant(z.type, 1.0)
    upper = e.floating("fsub", one, half)
    lost = e.floating("fsub", e.floating("fsub", one, upper), half)
    tail = _polynomial(e, z, c.COS_TAIL_64)
    return e.floating("fadd", upper, e.fma(e.floating("fmul", z, z), tail, lost))


def _polynomial(e: Emitter, x: Typed, coefficients: tuple[float, ...]) -> Typed:
    total = constant(x.type, coefficients[-1])
    for value in reversed(coefficients[:-1]):
        total = e.fma(total, x, constant(x.type, value))
    return total


def _reduce_large(e: Emitter, x: Typed) -> tuple[Typed, Typed]:
    """(quadrant, rest) of one large argument, computed in f64."""
    module = e.function.module
    header = f"define internal {{ i64, double }} @{_LARGE}(double %x) noinline nounwind willreturn memory(none)"
    if all(f.header != header for f in module.functions):
        _define_large(FunctionText(module, header))
    called = e.function.op(f"call {{ i64, double }} @{_LARGE}({e.cast('fpext', x, 'double')})")
    quadrant, rest = _parts(e, "{ i64, double }", called)
    if x.element == "double":
        return quadrant, rest
    return e.cast("trunc", quadrant, "i32"), e.cast("fptrunc", rest, "float")


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
    function.do(f"ret {_pair(e, quadrant, r)}")
