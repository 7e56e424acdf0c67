"""Which type two operands meet in: Triton's rules, on element types.

A number without a type joins at the tensor's type unless it is of a higher kind (bool < int < float). Otherwise f64
wins over f32 over f16; bf16 keeps only with bf16, and is f16 with f16 and f32 with integers; half types divide in f32;
integers follow C (unsigned wins at equal rank).
"""

from __future__ import annotations

from ..errors import TypeMismatch
from ..ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I32,
    I64,
    SCALARS,
    U32,
    U64,
    Element,
    Pointer,
    Scalar,
)
from ..printable import shown
from .tensor import Operand, tensor
from .typed import Typed

_KIND_ORDER = {"bool": 0, "int": 1, "uint": 1, "float": 2}
_LARGEST_F32 = 3.4028234663852886e38
_SMALLEST_F32 = 1.1754943508222875e-38


def type_of_number(number: int | float | bool) -> Scalar:
    """The type of a number on its own."""
    if isinstance(number, Typed):
        return number.type
    if isinstance(number, bool):
        return I1
    if isinstance(number, int):
        for candidate in (I32, U32, I64, U64):
            if fits(number, candidate):
                return candidate
        raise TypeMismatch(f"the integer {number} does not fit 64 bits")
    magnitude = abs(number)
    normal = magnitude == 0.0 or magnitude != magnitude or magnitude == float("inf")
    return F32 if normal or _SMALLEST_F32 <= magnitude <= _LARGEST_F32 else F64


def fits(number: int, type: Scalar) -> bool:
    """Whether an integer is in the range of an integer type."""
    if type.kind == "bool":
        return number in (0, 1)
    if type.kind == "uint":
        return 0 <= number < 1 << type.bits
    return -(1 << (type.bits - 1)) <= number < 1 << (type.bits - 1)


def scalar_of(operand: Operand) -> Scalar:
    """The element type of a tensor of numbers, or the type of a Python number."""
    if not isinstance(operand, tensor):
        return type_of_number(operand)
    if isinstance(operand.dtype, Pointer):
        raise TypeMismatch(f"expected numbers, got pointers ({operand.type})")
    return operand.dtype


def common_type(lhs: Operand, rhs: Operand, *, division: bool = False) -> Scalar:
    """The type in which ``lhs`` and ``rhs`` are computed; ``division`` for / // %."""
    a, b = scalar_of(lhs), scalar_of(rhs)
    if _has_type(lhs) != _has_type(rhs):
        of_number, of_tensor = (b, a) if _has_type(lhs) else (a, b)
        if _KIND_ORDER[of_number.kind] <= _KIND_ORDER[of_tensor.kind]:
            return F32 if division and of_tensor in (F16, BF16) else of_tensor
    return _meet(a, b, division)


def _has_type(operand: Operand) -> bool:
    return isinstance(operand, tensor | Typed)


def _meet(a: Scalar, b: Scalar, division: bool) -> Scalar:
    if a.is_float or b.is_float:
        return _meet_floats(a, b, division)
    if a == b:
        return a
    if division and a.is_signed != b.is_signed:  # a boolean counts as unsigned
        raise TypeMismatch(
            f"Cannot use / // or % with {a.code} and {b.code} because they have different signedness",
            hint="cast one operand with .to()",
        )
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    if "bool" in (a.kind, b.kind):
        return b if a.kind == "bool" else a
    unsigned, signed = (a, b) if a.kind == "uint" else (b, a)
    return unsigned if unsigned.bits >= signed.bits else signed


def _meet_floats(a: Scalar, b: Scalar, division: bool) -> Scalar:
    pair = (a, b)
    if F64 in pair:
        return F64
    if F32 in pair:
        return F32
    if F16 in pair:
        return F32 if division else F16
    if BF16 in pair:
        return BF16 if a == b and not division else F32
    if a == b and not division:
        return a
    if division:
        return F32
    return F16 if a.is_float and b.is_float else F32


def spelled(type: Element) -> str:
    """An element type as kernels write it: ``tl.float32``."""
    if isinstance(type, Pointer):
        return f"tl.pointer_type({spelled(type.pointee)})"
    return f"tl.{type.spelling}"


_SPELLINGS = {spelled(type).removeprefix("tl.") for type in SCALARS.values()}


def scalar_type(dtype: object) -> Scalar:
    """``dtype`` as a scalar type: a Scalar, or its name; raises TypeMismatch."""
    if isinstance(dtype, Scalar):
        return dtype
    if isinstance(dtype, str) and dtype in SCALARS:
        return SCALARS[dtype]
    raise TypeMismatch(
        f"expected an element type such as tl.float32, got {shown(dtype)}",
        hint=f"write tl.{dtype}" if dtype in _SPELLINGS else None,
    )
