"""Mathematical functions of tensors and numbers."""

from __future__ import annotations

from ..errors import TypeMismatch
from ..ir.types import F16, F32, I32, I64, U8, U32, U64, Scalar
from ..tile import elementwise as ew
from .arithmetic import as_tensor, bit_and, broadcast_all, cast_to, constant, meet, promote_bf16
from .builtin import builtin
from .conditions import compare, where
from .promotion import scalar_of, scalar_type
from .storage import FNUZ, NAN
from .tensor import Operand, emit, tensor

#: Bits of the largest odd integer of a float type, by the bits of that. (bf16 and an integer meet in f32.)
_DIGITS = {16: 11, 32: 24, 64: 53}


class PropagateNan:
    """NaN mode of minimum, maximum and clamp (tl.PropagateNan)."""

    NONE = "none"
    ALL = "all"


def _float(x: Operand, what: str) -> tensor:
    """A floating-point tensor; integers become f32."""
    x = as_tensor(x)
    if isinstance(x.dtype, Scalar):
        return x if x.dtype.is_float else cast_to(x, F32)
    raise TypeMismatch(f"{what} takes numbers, got {x.value.type}")


def _floats(x: Operand, y: Operand, what: str) -> tuple[tensor, tensor]:
    """Both in their common float type. A number beside a tensor takes its type, and is never rounded to f32 before."""
    if not isinstance(x, tensor) and not isinstance(y, tensor):
        x = _float(x, what)
    a, b = (_float(v, what) if isinstance(v, tensor) else v for v in (x, y))
    return meet(a, b)


def _unary(op: type[ew.FloatUnary], x: Operand) -> tensor:
    return emit(op(_float(x, f"tl.{op.mnemonic}").value))


@builtin
def exp(x: Operand) -> tensor:
    """e**x in the shape and float type of ``x`` (integers: f32), fast for f32.

    On a GPU f32 is 2**(x log2(e)) with a rounded product, off by up to |x| units in the last place.
    """
    return _unary(ew.Exp, x)


@builtin
def exp_rn(x: Operand) -> tensor:
    """e**x within one unit in the last place."""
    return emit(ew.Exp(_float(x, "exp").value, "1 ulp"))


@builtin
def exp_within_two(x: Operand) -> tensor:
    """e**x within two units in the last place: libdevice's exp, a few instructions on a GPU."""
    return emit(ew.Exp(_float(x, "exp").value, "2 ulp"))


@builtin
def exp2(x: Operand) -> tensor:
    """2**x in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Exp2, x)


@builtin
def exp10(x: Operand) -> tensor:
    """10**x in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Exp10, x)


@builtin
def log(x: Operand) -> tensor:
    """Natural logarithm in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Log, x)


@builtin
def log2(x: Operand) -> tensor:
    """Logarithm to base 2 in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Log2, x)


@builtin
def log10(x: Operand) -> tensor:
    """Logarithm to base 10 in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Log10, x)


@builtin
def sin(x: Operand) -> tensor:
    """Sine of radians in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Sin, x)


@builtin
def cos(x: Operand) -> tensor:
    """Cosine of radians in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Cos, x)


@builtin
def atan(x: Operand) -> tensor:
    """Arc tangent, in [-pi/2, pi/2], in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Atan, x)


@builtin
def atan2(y: Operand, x: Operand) -> tensor:
    """The angle of the point (x, y), in [-pi, pi], in the common float type and shape (integers: f32)."""
    a, b = _floats(y, x, "atan2")
    return emit(ew.Atan2(a.value, b.value))


@builtin
def pow(x: Operand, y: Operand) -> tensor:  # noqa: A001 -- the language's own name
    """x**y in the common float type and shape; negative x needs a whole y, else NaN. Two integers meet in f32.

    Where ``y`` is a tensor of integers the sign is that of the integer, also if the float type has not all its digits.
    """
    a, b = meet(x, y)
    if not a.value.type.is_float:
        a, b = cast_to(a, F32), cast_to(b, F32)
    power = emit(ew.Pow(a.value, b.value))
    if isinstance(y, tensor) and scalar_of(y).is_integer and scalar_of(y).bits > _DIGITS[scalar_of(a).bits]:
        return where(compare(bit_and(y, 1), 1, "eq"), copysign(power, a), power)
    return power


@builtin
def tanh(x: Operand) -> tensor:
    """Hyperbolic tangent in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Tanh, x)


@builtin
def erf(x: Operand) -> tensor:
    """Error function in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Erf, x)


@builtin
def sqrt(x: Operand) -> tensor:
    """Square root in the shape and float type of ``x`` (integers: f32); for f32 it may be approximate, see sqrt_rn."""
    return _unary(ew.Sqrt, x)


@builtin
def sqrt_rn(x: Operand) -> tensor:
    """Square root with IEEE rounding, in the shape and float type of ``x`` (integers: f32)."""
    return emit(ew.Sqrt(_float(x, "tl.sqrt_rn").value, True))


@builtin
def rsqrt(x: Operand) -> tensor:
    """1/sqrt(x) in the shape and float type of ``x`` (integers: f32)."""
    return _unary(ew.Rsqrt, x)


@builtin
def floor(x: Operand) -> tensor:
    """Largest integer not above x, as a float of the type of ``x`` (integers: f32)."""
    return _unary(ew.Floor, x)


@builtin
def ceil(x: Operand) -> tensor:
    """Smallest integer not below x, as a float of the type of ``x`` (integers: f32)."""
    return _unary(ew.Ceil, x)


@builtin
def rint(x: Operand) -> tensor:
    """Nearest integer, ties to even, as a float of the type of ``x`` (integers: f32)."""
    return _unary(ew.RoundEven, x)


@builtin
def trunc(x: Operand) -> tensor:
    """x rounded towards zero, as a float of the type of ``x`` (integers: f32)."""
    return _unary(ew.Trunc, x)


@builtin
def abs(x: Operand) -> tensor:  # noqa: A001 -- the language's own name
    """|x| in the type and shape of ``x``; the most negative integer stays as it is. Raises TypeMismatch for
    pointers."""
    x = as_tensor(x)
    dtype = scalar_of(x)
    if not dtype.is_float or dtype.bits != 8:
        return emit(ew.Abs(x.value))
    bits = emit(ew.Bitcast(x.value, U8))  # nobody computes in eight bits, but their highest is the sign
    made = emit(ew.And(bits.value, constant(0x7F, U8, x.shape).value))
    if dtype in FNUZ:
        nan = constant(NAN, U8, x.shape)  # alone it is no sign
        is_nan = emit(ew.Compare(bits.value, nan.value, "eq"))
        made = emit(ew.Select(is_nan.value, nan.value, made.value))
    return emit(ew.Bitcast(made.value, dtype))


@builtin
def fma(x: Operand, y: Operand, z: Operand) -> tensor:
    """x * y + z with one rounding, in the common float type and shape; raises TypeMismatch for integers.

    Numbers count as tensors of float32 or int32 (or wider, where those are too narrow).
    """
    a, b = meet(as_tensor(x), as_tensor(y))
    a, c = meet(a, as_tensor(z))
    a, b, c = broadcast_all(a, cast_to(b, a.dtype), c)
    return emit(ew.Fma(a.value, b.value, c.value))


@builtin
def fdiv(x: Operand, y: Operand, ieee_rounding: bool = False) -> tensor:
    """x / y in the common float type (integers: f32); f32 may be off by 2 units in the last place.

    ``ieee_rounding`` asks for the correctly rounded quotient. Unlike the operator /, f16 stays f16.
    """
    a, b = _floats(x, y, "tl.fdiv")
    return emit(ew.Div(a.value, b.value, ieee_rounding))


@builtin
def div_rn(x: Operand, y: Operand) -> tensor:
    """x / y rounded correctly, in the common float type (integers: f32)."""
    return fdiv(x, y, ieee_rounding=True)


@builtin
def umulhi(x: Operand, y: Operand) -> tensor:
    """Upper half of the double-width product of 32- or 64-bit integers, in their common type.

    Signed ones count as the unsigned ones of their bits, so that -1 is the largest. Raises TypeMismatch for floats.
    """
    a, b = meet(x, y)
    unsigned = U64 if a.dtype == I64 else U32 if a.dtype == I32 else None
    if unsigned is None:
        return emit(ew.MulHigh(a.value, b.value))
    high = ew.MulHigh(emit(ew.Bitcast(a.value, unsigned)).value, emit(ew.Bitcast(b.value, unsigned)).value)
    return emit(ew.Bitcast(emit(high).value, a.dtype))


def _extremum(op: type[ew.Min] | type[ew.Max], x: Operand, y: Operand, nan: str) -> tensor:
    a, b = meet(*(promote_bf16(as_tensor(operand)) for operand in (x, y)))
    type = a.value.type.scalar
    if type.is_float and type.bits == 8:  # f16 holds all of them, and infinities come back towards zero
        a, b = cast_to(a, F16), cast_to(b, F16)
    made = emit(op(a.value, b.value, nan == PropagateNan.ALL))
    return cast_to(made, type, "rtz") if made.dtype != type else made


@builtin
def minimum(x: Operand, y: Operand, propagate_nan: str = PropagateNan.NONE) -> tensor:
    """The smaller operand elementwise, in the common type and shape; bf16 becomes f32.

    Numbers count as tensors of float32 or int32 (or wider, where those are too narrow), so f16 and 0.0 give f32. Of
    0.0 and -0.0 that is -0.0, of NaN and a number the number; with ``propagate_nan=tl.PropagateNan.ALL`` NaN.
    """
    return _extremum(ew.Min, x, y, propagate_nan)


@builtin
def maximum(x: Operand, y: Operand, propagate_nan: str = PropagateNan.NONE) -> tensor:
    """The larger operand elementwise, in the common type and shape; bf16 becomes f32.

    Numbers count as tensors of float32 or int32 (or wider, where those are too narrow), so f16 and 0.0 give f32. Of
    0.0 and -0.0 that is 0.0, of NaN and a number the number; with ``propagate_nan=tl.PropagateNan.ALL`` NaN.
    """
    return _extremum(ew.Max, x, y, propagate_nan)


@builtin
def clamp(x: Operand, min: Operand, max: Operand, propagate_nan: str = PropagateNan.NONE) -> tensor:
    """x held between ``min`` and ``max``, in the common type and shape of the three, as ``maximum`` has it.

    NaN gives ``min``; with ``propagate_nan=tl.PropagateNan.ALL`` NaN.
    """
    return minimum(maximum(x, min, propagate_nan), max, propagate_nan)


@builtin
def isnan(x: Operand) -> tensor:
    """int1 in the shape of ``x``: x is not a number; false for integers."""
    value = as_tensor(x).value
    return emit(ew.Compare(value, value, "ne"))


@builtin
def isinf(x: Operand) -> tensor:
    """int1 in the shape of ``x``: x is +inf or -inf; raises TypeMismatch for integers."""
    magnitude = abs(x)
    bound = constant(float("inf"), scalar_type(magnitude.dtype), magnitude.shape)
    return emit(ew.Compare(magnitude.value, bound.value, "eq"))


@builtin
def copysign(x: Operand, y: Operand) -> tensor:
    """|x| with the sign bit of y (that of a NaN and of -0 too), in the common type and shape.

    Raises TypeMismatch unless that type is f16, bf16, f32 or f64.
    """
    a, b = meet(x, y)
    unsigned = {16: "u16", 32: "u32", 64: "u64"}.get(scalar_type(b.dtype).bits)
    if unsigned is None or not b.value.type.is_float:
        raise TypeMismatch(f"copysign takes f16, bf16, f32 or f64, got {b.dtype.code}")
    bits = scalar_type(unsigned)
    sign = emit(ew.Bitcast(b.value, bits))
    limit = constant(1 << (bits.bits - 1), bits, b.shape)
    negative = emit(ew.Compare(sign.value, limit.value, "ge"))
    magnitude = abs(a)
    return where(negative, -magnitude, magnitude)
