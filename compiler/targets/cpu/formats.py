"""Narrow floating-point formats by integer arithmetic: bf16 and both f8 travel as bits and are computed in f32.

LLVM's own bf16 truncation flushes denormals with AVX512-BF16 and calls a missing runtime function without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, Scalar
from ...llvm.typed import Emitter, Typed, constant
from ...tile.formats import IntegerLimits, integer_limits


@dataclass(frozen=True, slots=True)
class Format:
    """An 8-bit format: mantissa bits, exponent bias, largest finite code (overflow saturates there), code of NaN."""

    mantissa: int
    bias: int
    largest: int
    nan: int


#: OCP 8-bit floating point specification (OFP8), revision 1.0.
FORMATS = {F8E4M3: Format(3, 7, 0x7E, 0x7F), F8E5M2: Format(2, 15, 0x7B, 0x7E)}


def compute_element(elem: Scalar) -> str:
    """The LLVM type that arithmetic on ``elem`` is done in."""
    return "double" if elem == F64 else "float"


def is_narrow(elem: Scalar) -> bool:
    """Whether arithmetic on ``elem`` is done in a wider format: a float below 32 bits."""
    return elem.is_float and elem.bits < 32


def widen(e: Emitter, x: Typed, elem: Scalar) -> Typed:
    """A value of a narrow format as f32 (exact); f32 and f64 as they are."""
    if elem == F16:
        return e.cast("fpext", x, "float")
    if elem == BF16:
        bits = e.cast("zext", x, "i32")
        return e.cast("bitcast", e.binary("shl", bits, constant(bits.type, 16)), "float")
    if elem == F8E5M2:  # the upper byte of an f16
        bits = e.cast("zext", x, "i16")
        half = e.cast("bitcast", e.binary("shl", bits, constant(bits.type, 8)), "half")
        return e.cast("fpext", half, "float")
    if elem == F8E4M3:
        return _widen_e4m3(e, x)
    return x


def _widen_e4m3(e: Emitter, x: Typed) -> Typed:
    bits = e.cast("zext", x, "i32")
    i32 = bits.type
    magnitude = e.binary("and", bits, constant(i32, 0x7F))
    normal = e.binary("shl", magnitude, constant(i32, 20))
    normal = e.binary("add", normal, constant(i32, (127 - 7) << 23))
    normal = e.cast("bitcast", normal, "float")
    tiny = e.cast("uitofp", magnitude, "float")
    tiny = e.floating("fmul", tiny, constant(tiny.type, 2.0**-9))
    value = e.select(e.compare("ult", magnitude, constant(i32, 8)), tiny, normal)
    nan = constant(value.type, float("nan"))
    value = e.select(e.compare("eq", magnitude, constant(i32, 0x7F)), nan, value)
    sign = e.binary("shl", e.binary("and", bits, constant(i32, 0x80)), constant(i32, 24))
    return e.cast("bitcast", e.binary("or", e.cast("bitcast", value, "i32"), sign), "float")


def narrow(e: Emitter, x: Typed, elem: Scalar, rounding: str = "rtne") -> Typed:
    """f32 rounded to ``elem``, to nearest even or towards zero; f32 and f64 stay."""
    if elem == F16:
        half = e.cast("fptrunc", x, "half")
        return toward_zero(e, x, half, "i16") if rounding == "rtz" else half
    if elem == BF16:
        return _narrow_bf16(e, x, rounding)
    if elem == F8E5M2 and rounding == "rtz":  # the upper byte of an f16, of which NaN may have none but lower bits
        half = e.cast("bitcast", narrow(e, x, F16, rounding), "i16")
        code = e.cast("trunc", e.binary("lshr", half, constant(half.type, 8)), "i8")
        return e.select(e.compare("uno", x, x), constant(code.type, FORMATS[elem].nan), code)
    if elem in FORMATS:
        code = _narrow_f8(e, x, FORMATS[elem])
        return _f8_toward_zero(e, x, code, elem) if rounding == "rtz" else code
    return x


def _narrow_bf16(e: Emitter, x: Typed, rounding: str) -> Typed:
    bits = e.cast("bitcast", x, "i32")
    i32, sixteen = bits.type, constant(bits.type, 16)
    upper = e.binary("lshr", bits, sixteen)
    rounded = upper
    if rounding == "rtne":
        odd = e.binary("and", upper, constant(i32, 1))
        rounded = e.binary("add", e.binary("add", bits, constant(i32, 0x7FFF)), odd)
        rounded = e.binary("lshr", rounded, sixteen)
    quiet = e.binary("or", upper, constant(i32, 0x40))
    return e.cast("trunc", e.select(e.compare("uno", x, x), quiet, rounded), "i16")


def _narrow_f8(e: Emitter, x: Typed, f: Format) -> Typed:
    bits = e.cast("bitcast", x, "i32")
    i32 = bits.type
    magnitude = e.binary("and", bits, constant(i32, 0x7FFFFFFF))
    shift = 23 - f.mantissa
    odd = e.binary("and", e.binary("lshr", magnitude, constant(i32, shift)), constant(i32, 1))
    rounded = e.binary("add", magnitude, constant(i32, (1 << (shift - 1)) - 1))
    rounded = e.binary("lshr", e.binary("add", rounded, odd), constant(i32, shift))
    normal = e.binary("sub", rounded, constant(i32, (127 - f.bias) << f.mantissa))
    # Below the smallest normal the quantum is fixed: adding a float with that unit in the last place rounds to it.
    magic = constant(x.type, 2.0 ** (1 - f.bias - f.mantissa + 23))
    size = e.cast("bitcast", magnitude, "float")
    tiny = e.cast("bitcast", Emitter(e.function).floating("fadd", size, magic), "i32")
    tiny = e.binary("sub", tiny, e.cast("bitcast", magic, "i32"))
    is_tiny = e.compare("ult", magnitude, constant(i32, (127 - f.bias + 1) << 23))
    code = e.select(is_tiny, tiny, normal)
    code = e.intrinsic("umin", code, constant(i32, f.largest))
    code = e.select(e.compare("uno", x, x), constant(i32, f.nan), code)
    sign = e.binary("lshr", e.binary("and", bits, constant(i32, -0x80000000)), constant(i32, 24))
    return e.cast("trunc", e.binary("or", code, sign), "i8")


def _f8_toward_zero(e: Emitter, exact: Typed, code: Typed, elem: Scalar) -> Typed:
    """The code before ``code``, that of the nearest number, where it is larger in magnitude than ``exact``."""
    back = e.intrinsic("fabs", widen(e, code, elem))
    larger = e.compare("ogt", back, e.intrinsic("fabs", exact))
    return e.select(larger, e.binary("sub", code, constant(code.type, 1)), code)


def toward_zero(e: Emitter, exact: Typed, rounded: Typed, integer: str) -> Typed:
    """Step ``rounded`` (to nearest) back towards zero where it is larger in magnitude than ``exact``."""
    back = e.intrinsic("fabs", e.cast("fpext", rounded, exact.element))
    larger = e.compare("ogt", back, e.intrinsic("fabs", exact))
    bits = e.cast("bitcast", rounded, integer)
    less = e.binary("sub", bits, constant(bits.type, 1))
    return e.cast("bitcast", e.select(larger, less, bits), rounded.element)


def double_to_odd_float(e: Emitter, x: Typed) -> Typed:
    """f64 to f32 rounded to odd, so that rounding the result again to at most 22 bits is rounding once.

    Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE TC 57(4), 2008.
    """
    nearest = e.cast("fptrunc", x, "float")
    chopped = toward_zero(e, x, nearest, "i32")
    inexact = e.compare("one", e.cast("fpext", nearest, "double"), x)
    bits = e.cast("bitcast", chopped, "i32")
    odd = e.binary("or", bits, e.cast("zext", inexact, "i32"))
    return e.cast("bitcast", odd, "float")


def fma_narrow(e: Emitter, x: Typed, y: Typed, z: Typed, elem: Scalar) -> Typed:
    """x * y + z of values of a narrow format (given in f32), rounded once.

    The product is exact in f64; the sum is rounded to odd there by the sign of its error (Knuth's two-sum).
    """
    plain = Emitter(e.function)
    product = plain.floating("fmul", e.cast("fpext", x, "double"), e.cast("fpext", y, "double"))
    addend = e.cast("fpext", z, "double")
    total = plain.floating("fadd", product, addend)
    part = plain.floating("fsub", total, product)
    lost = plain.floating("fsub", product, plain.floating("fsub", total, part))
    error = plain.floating("fadd", lost, plain.floating("fsub", addend, part))
    zero = constant(error.type, 0.0)
    bits = e.cast("bitcast", total, "i64")
    one = constant(bits.type, 1)
    even = e.compare("eq", e.binary("and", bits, one), constant(bits.type, 0))
    outward = e.compare("ogt", plain.floating("fmul", error, total), zero)
    moved = e.select(outward, e.binary("add", bits, one), e.binary("sub", bits, one))
    inexact = e.binary("and", even, e.compare("one", error, zero))
    odd = e.cast("bitcast", e.select(inexact, moved, bits), "double")
    return narrow(e, double_to_odd_float(e, odd), elem)


def convert_float(e: Emitter, x: Typed, source: Scalar, to: Scalar, rounding: str) -> Typed:
    """One floating-point format to another, rounded once."""
    if source == to:
        return x
    if source == F64:
        if to == F32:
            near = e.cast("fptrunc", x, "float")
            return toward_zero(e, x, near, "i32") if rounding == "rtz" else near
        return narrow(e, double_to_odd_float(e, x), to, rounding)
    wide = widen(e, x, source)
    return e.cast("fpext", wide, "double") if to == F64 else narrow(e, wide, to, rounding)


def integer_to_float(e: Emitter, x: Typed, source: Scalar, to: Scalar) -> Typed:
    """An integer rounded once to ``to``."""
    opcode = "sitofp" if source.is_signed else "uitofp"
    if not is_narrow(to):
        return e.cast(opcode, x, compute_element(to))
    if source.bits <= 16:
        return narrow(e, e.cast(opcode, x, "float"), to)
    if source.bits == 64:
        x = _odd_beyond_doubles(e, x, source)
    return narrow(e, double_to_odd_float(e, e.cast(opcode, x, "double")), to)


def _odd_beyond_doubles(e: Emitter, x: Typed, source: Scalar) -> Typed:
    """64-bit integers of more than 53 bits rounded to an odd multiple of 2**11, which f64 holds exactly."""
    low, unit, zero = (constant(x.type, v) for v in ((1 << 11) - 1, 1 << 11, 0))
    lost = e.compare("ne", e.binary("and", x, low), zero)
    kept = e.binary("and", x, constant(x.type, -(1 << 11)))
    odd = e.binary("or", kept, e.select(lost, unit, zero))
    size = e.intrinsic("abs", x, extra=[Typed("i1", "false")]) if source.is_signed else x
    large = e.compare("ne", e.binary("lshr", size, constant(x.type, 53)), zero)
    return e.select(large, odd, x)


def float_to_integer(e: Emitter, x: Typed, source: Scalar, to: Scalar) -> Typed:
    """Truncation; what is out of range as on GPUs (:func:`~...tile.formats.integer_limits`)."""
    wide = widen(e, x, source)
    if to.bits == 1:
        return e.compare("une", wide, constant(wide.type, 0.0))
    limits = integer_limits(source.bits, to.bits, to.is_signed)
    least = constant(wide.type, float(limits.low))
    bounded = e.select(e.compare("ogt", wide, least), wide, least)  # NaN is the least, too
    if limits.bits <= (24 if wide.element == "float" else 53):  # the largest is a float
        most = constant(wide.type, float(limits.high))
        bounded = e.select(e.compare("olt", bounded, most), bounded, most)
        made = e.cast("fptosi", bounded, "i64" if limits.high >> 31 else "i32")
    else:
        beyond = e.compare("oge", wide, constant(wide.type, limits.high + 1.0))
        made = _truncate_inside(e, e.select(beyond, least, bounded), limits)
        made = e.select(beyond, constant(made.type, -1 if limits.low == 0 else limits.high), made)
    if limits.nan != limits.low:
        made = e.select(e.compare("uno", wide, wide), constant(made.type, limits.nan), made)
    return e.cast("trunc", made, f"i{to.bits}")


def _truncate_inside(e: Emitter, x: Typed, limits: IntegerLimits) -> Typed:
    """Floats inside of the limits of 32 or 64 bits. Processors convert signed numbers: of unsigned ones from the half
    on less the half, which is the sign's bit."""
    element = f"i{limits.bits}"
    if limits.low < 0:
        return e.cast("fptosi", x, element)
    half = constant(x.type, 2.0 ** (limits.bits - 1))
    upper = e.compare("oge", x, half)
    made = e.cast("fptosi", e.select(upper, e.floating("fsub", x, half), x), element)
    bit = e.select(upper, constant(made.type, -(1 << limits.bits - 1)), constant(made.type, 0))
    return e.binary("xor", made, bit)
