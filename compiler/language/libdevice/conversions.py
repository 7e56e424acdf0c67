"""Between floats and integers, in each direction of rounding, and bits taken as another type.

Unsigned results are int32 and int64 of the same bits, as Triton declares them. A number beyond the integers of the
result becomes the nearest one, as PTX's ``cvt`` does; NaN becomes 0 where f32 becomes 32 bits, else the bits 100...0.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.types import F32, F64, I32, I64, U32, U64, Scalar
from ..arithmetic import cast_to
from ..builtin import builtin
from ..conditions import where
from ..maths import ceil, floor, isnan, rint, trunc
from ..tensor import Operand, tensor
from .bits import given, is_finite, reinterpret, sum_rn
from .directed import directed

_Function = Callable[[Operand], tensor]
_WHOLE = {"rn": rint, "rz": trunc, "rd": floor, "ru": ceil}
_HOW = {"rn": "to nearest, ties to even", "rz": "towards zero", "rd": "down", "ru": "up"}


def _named(function: _Function, name: str, doc: str) -> _Function:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return builtin(function)


def _to_integers(source: Scalar, type: Scalar, rounding: str, name: str) -> _Function:
    signed = {U32: I32, U64: I64}.get(type, type)
    top = 2.0 ** (type.bits - type.is_signed)
    bottom = -top if type.is_signed else 0.0
    largest, smallest = int(top) - 1, int(bottom)
    of_nan = 0 if source.bits == type.bits == 32 else -(1 << (signed.bits - 1))

    def convert(x: Operand) -> tensor:
        r = _WHOLE[rounding](given(x, source, name))
        inside = (r > bottom) & (r < top)
        # Casts of what does not fit are undefined, so they are given 0.
        made = where(inside, cast_to(where(inside, r, 0.0), type), smallest)
        made = reinterpret(where(r >= top, largest, made), signed)
        return where(isnan(r), of_nan, made)

    return _named(
        convert, name, f"{source.code} rounded {_HOW[rounding]} to {type.code}, as {signed.code} in the shape of ``x``."
    )


def _to_floats(source: Scalar, type: Scalar, rounding: str, name: str) -> _Function:
    def convert(x: Operand) -> tensor:
        x = given(x, source, name)
        near = cast_to(x, type)
        # The upper half and the lower half are exact in f64, and so is the first difference.
        high = cast_to(x >> 32, F64) * 2.0**32 if source.bits == 64 else cast_to(x, F64)
        low = cast_to(x & 0xFFFFFFFF, F64) if source.bits == 64 else 0.0
        return directed(near, sum_rn(sum_rn(high, -cast_to(near, F64)), low), rounding)

    return _named(convert, name, f"{source.code} rounded {_HOW[rounding]} to {type.code} in the shape of ``x``.")


def _narrower(rounding: str, name: str) -> _Function:
    def convert(x: Operand) -> tensor:
        x = given(x, F64, name)
        near = cast_to(x, F32)
        exact = where(is_finite(x) & (x != cast_to(near, F64)), x - cast_to(near, F64), 0.0)
        return directed(near, exact, rounding)

    return _named(convert, name, f"f64 rounded {_HOW[rounding]} to f32 in the shape of ``x``.")


def _same_bits(source: Scalar, type: Scalar, name: str) -> _Function:
    def convert(x: Operand) -> tensor:
        return reinterpret(given(x, source, name), type)

    return _named(convert, name, f"The bits of {source.code} as {type.code} in the shape of ``x``.")


def _each(make: Callable[..., _Function], *types: Scalar, name: str) -> tuple[_Function, ...]:
    """The functions that round to nearest, towards zero, down and up."""
    return tuple(make(*types, rounding, f"{name}_{rounding}") for rounding in _WHOLE)


float2int_rn, float2int_rz, float2int_rd, float2int_ru = _each(_to_integers, F32, I32, name="float2int")
float2uint_rn, float2uint_rz, float2uint_rd, float2uint_ru = _each(_to_integers, F32, U32, name="float2uint")
float2ll_rn, float2ll_rz, float2ll_rd, float2ll_ru = _each(_to_integers, F32, I64, name="float2ll")
float2ull_rn, float2ull_rz, float2ull_rd, float2ull_ru = _each(_to_integers, F32, U64, name="float2ull")
double2int_rn, double2int_rz, double2int_rd, double2int_ru = _each(_to_integers, F64, I32, name="double2int")
double2uint_rn, double2uint_rz, double2uint_rd, double2uint_ru = _each(_to_integers, F64, U32, name="double2uint")
double2ll_rn, double2ll_rz, double2ll_rd, double2ll_ru = _each(_to_integers, F64, I64, name="double2ll")
double2ull_rn, double2ull_rz, double2ull_rd, double2ull_ru = _each(_to_integers, F64, U64, name="double2ull")
int2float_rn, int2float_rz, int2float_rd, int2float_ru = _each(_to_floats, I32, F32, name="int2float")
uint2float_rn, uint2float_rz, uint2float_rd, uint2float_ru = _each(_to_floats, U32, F32, name="uint2float")
ll2float_rn, ll2float_rz, ll2float_rd, ll2float_ru = _each(_to_floats, I64, F32, name="ll2float")
ull2float_rn, ull2float_rz, ull2float_rd, ull2float_ru = _each(_to_floats, U64, F32, name="ull2float")
ll2double_rn, ll2double_rz, ll2double_rd, ll2double_ru = _each(_to_floats, I64, F64, name="ll2double")
ull2double_rn, ull2double_rz, ull2double_rd, ull2double_ru = _each(_to_floats, U64, F64, name="ull2double")
double2float_rn, double2float_rz, double2float_rd, double2float_ru = _each(_narrower, name="double2float")
int2double_rn = _to_floats(I32, F64, "rn", "int2double_rn")
uint2double_rn = _to_floats(U32, F64, "rn", "uint2double_rn")

int_as_float = _same_bits(I32, F32, "int_as_float")
uint_as_float = _same_bits(U32, F32, "uint_as_float")
float_as_int = _same_bits(F32, I32, "float_as_int")
float_as_uint = _same_bits(F32, I32, "float_as_uint")
longlong_as_double = _same_bits(I64, F64, "longlong_as_double")
double_as_longlong = _same_bits(F64, I64, "double_as_longlong")


@builtin
def hiloint2double(hi: Operand, lo: Operand) -> tensor:
    """f64 of the upper bits ``hi`` and the lower bits ``lo``, integers of 32 bits, else TypeMismatch."""
    high, low = given(hi, I32, "hiloint2double"), given(lo, U32, "hiloint2double")
    return reinterpret((cast_to(high, I64) << 32) | cast_to(low, I64), F64)


@builtin
def double2loint(x: Operand) -> tensor:
    """The lower 32 bits of f64 as int32."""
    return cast_to(reinterpret(given(x, F64, "double2loint"), I64), I32)


@builtin
def double2hiint(x: Operand) -> tensor:
    """The upper 32 bits of f64 as int32."""
    return cast_to(reinterpret(given(x, F64, "double2hiint"), I64) >> 32, I32)


__all__ = [
    "double2float_rd",
    "double2float_rn",
    "double2float_ru",
    "double2float_rz",
    "double2hiint",
    "double2int_rd",
    "double2int_rn",
    "double2int_ru",
    "double2int_rz",
    "double2ll_rd",
    "double2ll_rn",
    "double2ll_ru",
    "double2ll_rz",
    "double2loint",
    "double2uint_rd",
    "double2uint_rn",
    "double2uint_ru",
    "double2uint_rz",
    "double2ull_rd",
    "double2ull_rn",
    "double2ull_ru",
    "double2ull_rz",
    "double_as_longlong",
    "float2int_rd",
    "float2int_rn",
    "float2int_ru",
    "float2int_rz",
    "float2ll_rd",
    "float2ll_rn",
    "float2ll_ru",
    "float2ll_rz",
    "float2uint_rd",
    "float2uint_rn",
    "float2uint_ru",
    "float2uint_rz",
    "float2ull_rd",
    "float2ull_rn",
    "float2ull_ru",
    "float2ull_rz",
    "float_as_int",
    "float_as_uint",
    "hiloint2double",
    "int2double_rn",
    "int2float_rd",
    "int2float_rn",
    "int2float_ru",
    "int2float_rz",
    "int_as_float",
    "ll2double_rd",
    "ll2double_rn",
    "ll2double_ru",
    "ll2double_rz",
    "ll2float_rd",
    "ll2float_rn",
    "ll2float_ru",
    "ll2float_rz",
    "longlong_as_double",
    "uint2double_rn",
    "uint2float_rd",
    "uint2float_rn",
    "uint2float_ru",
    "uint2float_rz",
    "uint_as_float",
    "ull2double_rd",
    "ull2double_rn",
    "ull2double_ru",
    "ull2double_rz",
    "ull2float_rd",
    "ull2float_rn",
    "ull2float_ru",
    "ull2float_rz",
]
