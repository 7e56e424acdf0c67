"""Operators: broadcasting, promotion, and the operation that follows. Also casts."""

from __future__ import annotations

from ..counting import counted
from ..errors import TypeMismatch
from ..ir.types import (
    BF16,
    F32,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Element,
    Pointer,
    Scalar,
    Tile,
)
from ..printable import shown
from ..tile import elementwise as ew
from ..tile import shape as sh
from . import overflow
from .builtin import builtin, operator
from .constexpr import unwrap
from .context import warn
from .promotion import common_type, fits, scalar_of, scalar_type, type_of_number
from .storage import converted
from .tensor import Operand, emit, tensor
from .typed import Typed

_SIGNED = {U8: I8, U16: I16, U32: I32, U64: I64}


def constant(value: int | float | bool, type: Scalar, shape: tuple[int, ...] = ()) -> tensor:
    """A constant of ``type``; raises TypeMismatch where an integer does not fit."""
    if type.is_stored_only:
        return cast_to(constant(float(value), F32, shape), type)
    if type.is_float:
        value = float(value)
    elif isinstance(value, float):
        raise TypeMismatch(f"the number {value} is not of type {type.code}")
    elif type.kind == "bool":
        value = bool(value)
    elif not fits(int(value), type):
        raise TypeMismatch(f"the integer {value} is out of range for {type.code}")
    else:
        value = int(value)
    return emit(ew.Constant(value, Tile(type, shape)))


def as_tensor(operand: object, type: Scalar | None = None) -> tensor:
    """A tensor as it is; a Python number as a scalar constant of ``type`` (default: its own).

    Raises TypeMismatch for anything else, and for an integer that is out of range for ``type``.
    """
    if isinstance(operand, tensor):
        return operand
    if isinstance(operand, bool | int | float):
        return constant(operand, type or type_of_number(operand))
    raise TypeMismatch(f"expected a tensor or a number, got {shown(operand)}")


def operand(value: object) -> Operand:
    """What an operator is given beside a tensor: a tensor or a number; raises TypeMismatch for anything else."""
    value = unwrap(value)
    if isinstance(value, tensor | int | float):
        return value
    hint = "ask whether it is None with `is`" if value is None else None
    raise TypeMismatch(f"{shown(value)} cannot be combined with a tensor", hint=hint)


@builtin
def to_tensor(x: object) -> tensor:
    """A number as a scalar tensor; a tensor as it is.

    True and False are int1, integers the first of int32, uint32, int64, uint64 that holds them, floats float32 (float64
    where the normal range of float32 is too small). Raises TypeMismatch for anything else.
    """
    return as_tensor(x)


# Shapes -------------------------------------------------------------------------------------------------------


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of two shapes, aligned at the right; raises TypeMismatch."""
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for m, n in zip(left, right, strict=True):
        if m != n and 1 not in (m, n):
            raise TypeMismatch(
                f"cannot broadcast shapes {list(a)} and {list(b)}: {m} and {n} differ",
                hint="add a dimension with x[:, None] or x[None, :]",
            )
    return tuple(max(m, n) for m, n in zip(left, right, strict=True))


def broadcast_to_shape(x: tensor, shape: tuple[int, ...]) -> tensor:
    """``x`` repeated up to ``shape``: dimensions are added at the left, those of size 1 stretched.

    Raises TypeMismatch where the shapes do not fit.
    """
    if x.shape == shape:
        return x
    if not x.shape:
        return emit(sh.Splat(x.value, shape))
    while len(x.shape) < len(shape):
        x = emit(sh.ExpandDims(x.value, 0))
    return x if x.shape == shape else emit(sh.Broadcast(x.value, shape))


def broadcast_all(*operands: tensor) -> list[tensor]:
    """All operands in their common shape; raises TypeMismatch where there is none."""
    shape: tuple[int, ...] = ()
    for x in operands:
        shape = broadcast_shape(shape, x.shape)
    return [broadcast_to_shape(x, shape) for x in operands]


def meet(lhs: Operand, rhs: Operand, *, division: bool = False) -> tuple[tensor, tensor]:
    """Both operands in their common type (``division``: that of / // %) and shape; raises TypeMismatch."""
    if not isinstance(lhs, tensor) and not isinstance(rhs, tensor):
        lhs = as_tensor(lhs)
    type = common_type(lhs, rhs, division=division)
    a, b = (_in_type(x, type) for x in (lhs, rhs))
    a, b = broadcast_all(a, b)
    return a, b


def _in_type(operand: Operand, type: Scalar) -> tensor:
    if isinstance(operand, tensor | Typed):
        return cast_to(as_tensor(operand), type)
    return as_tensor(operand, type)


# Casts --------------------------------------------------------------------------------------------------------


_ADDRESS_HINT = "tl.load reads what a pointer points to; .to(tl.int64) gives its address"


def cast_to(x: tensor, type: Element, rounding: str = "rtne") -> tensor:
    """Numeric conversion; pointers and 64-bit integers are reinterpreted, and a pointer as int1 is whether it is not 0.

    The shape stays. ``rounding`` ("rtne", "rtz") matters for float to narrower float only. Raises TypeMismatch for
    pointers and other numbers.
    """
    if x.dtype == type:
        return x
    if any(isinstance(t, Scalar) and t.is_stored_only for t in (x.dtype, type)):
        if not isinstance(x.dtype, Scalar) or not isinstance(type, Scalar):
            raise TypeMismatch(f"cannot convert {x.dtype.code} to {type.code}")
        return converted(x, type, rounding)
    if isinstance(x.dtype, Pointer) or isinstance(type, Pointer):
        return _pointer_cast(x, type)
    return emit(ew.Cast(x.value, type, rounding))


def _pointer_cast(x: tensor, type: Element) -> tensor:
    """A pointer as another one or as a number, or a number as a pointer."""
    for number in (x.dtype, type):
        if isinstance(number, Scalar) and number.is_float:
            raise TypeMismatch(f"cannot convert {x.dtype.code} to {type.code}", hint=_ADDRESS_HINT)
    if isinstance(x.dtype, Scalar):
        return emit(ew.Bitcast((x if x.dtype.bits == 64 else cast_to(x, I64)).value, type))
    if isinstance(type, Scalar) and type.bits < 64:
        if type.kind != "bool":
            raise TypeMismatch(f"cannot convert {x.dtype.code} to {type.code}", hint=_ADDRESS_HINT)
        return cast_to(cast_to(x, I64), type)
    return emit(ew.Bitcast(x.value, type))


@builtin
def cast(input: Operand, dtype: object, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
    """``input`` converted to ``dtype``; ``bitcast`` reinterprets the bits instead.

    The shape stays, also where ``dtype`` is the type of another tile, as ``x.type`` is: its elements' type counts.
    Floats become integers by truncation (out of range: undefined), integers wrap, int1 is input != 0.
    ``fp_downcast_rounding`` is "rtne" (default) or "rtz", for a cast to a narrower float, or to the type that is
    there, which rounds nothing. Raises TypeMismatch for another use of it, and for a bitcast between types of different
    widths.
    """
    wanted = dtype.elem if isinstance(dtype, Tile) else dtype
    type = wanted if isinstance(wanted, Pointer) else scalar_type(wanted)
    x = as_tensor(input)
    if x.dtype == type:
        return x
    if bitcast:
        return emit(ew.Bitcast(x.value, type))
    if fp_downcast_rounding is not None and not (x.value.type.is_float and _is_narrower_float(type, scalar_of(x))):
        raise TypeMismatch(
            f"fp_downcast_rounding is for a cast to a narrower float, not from {x.dtype.code} to {type.code}",
            hint="leave it out",
        )
    return cast_to(x, type, fp_downcast_rounding or "rtne")


def _is_narrower_float(type: Element, source: Scalar) -> bool:
    return isinstance(type, Scalar) and type.is_float and type.bits < source.bits


# Operators ----------------------------------------------------------------------------------------------------


def is_pointer(x: object) -> bool:
    """Whether ``x`` is a tensor of pointers."""
    return isinstance(x, tensor) and isinstance(x.dtype, Pointer)


def _offset(x: Operand) -> tensor:
    """What a pointer moves by: integers, and of booleans 0 and 1."""
    offset = as_tensor(x)
    if is_pointer(offset):
        raise TypeMismatch("cannot add pointers together", hint="move one of them by a number of elements")
    if not isinstance(offset.dtype, Scalar) or offset.dtype.is_float:
        raise TypeMismatch(
            f"a pointer moves by integers, got {offset.value.type}",
            hint="cast the offset with .to(tl.int64)",
        )
    return cast_to(offset, I32) if offset.dtype == I1 else offset


def _move_pointer(pointer: tensor, offset: tensor) -> tensor:
    a, b = broadcast_all(pointer, offset)
    return emit(ew.AddPtr(a.value, b.value))


@operator
def add(x: Operand, y: Operand, sanitize_overflow: bool = True) -> tensor:
    """x + y in the common type and shape of both; a pointer plus integers moves by elements of its pointee.

    Integers wrap; kernels with ``debug`` assert that they do not, unless ``sanitize_overflow`` is False. Raises
    TypeMismatch where shapes do not broadcast, and for a pointer moved by floats.
    """
    if is_pointer(x):
        return _move_pointer(as_tensor(x), _offset(y))
    if is_pointer(y):
        return _move_pointer(as_tensor(y), _offset(x))
    a, b = meet(x, y)
    return overflow.checked(ew.Add(a.value, b.value), sanitize_overflow)


@operator
def sub(x: Operand, y: Operand, sanitize_overflow: bool = True) -> tensor:
    """x - y in the common type and shape of both; a pointer minus integers moves back by elements.

    Integers wrap; kernels with ``debug`` assert that they do not, unless ``sanitize_overflow`` is False. Raises
    TypeMismatch where shapes do not broadcast, and for pointers on the right.
    """
    if is_pointer(x):
        return _move_pointer(as_tensor(x), emit(ew.Neg(_offset(y).value)))
    a, b = meet(x, y)
    return overflow.checked(ew.Sub(a.value, b.value), sanitize_overflow)


@operator
def mul(x: Operand, y: Operand, sanitize_overflow: bool = True) -> tensor:
    """x * y in the common type and shape of both; raises TypeMismatch for pointers and shapes that do not broadcast.

    Integers wrap; kernels with ``debug`` assert that they do not, unless ``sanitize_overflow`` is False.
    """
    a, b = meet(x, y)
    return overflow.checked(ew.Mul(a.value, b.value), sanitize_overflow)


@builtin
def truediv(x: Operand, y: Operand) -> tensor:
    """x / y as floats: f16, bf16 and integers divide in f32 (beside f64 in f64), and that is the result's type.

    For f32 it may be off by 2 units in the last place; tl.div_rn rounds correctly. Raises TypeMismatch for a signed by
    an unsigned integer.
    """
    a, b = meet(x, y, division=True)
    if isinstance(a.dtype, Scalar) and a.dtype.is_integer:
        a, b = cast_to(a, F32), cast_to(b, F32)
    return emit(ew.Div(a.value, b.value))


@builtin
def floordiv(x: Operand, y: Operand) -> tensor:
    """x // y of integers in their common type, truncated towards zero as in C.

    Raises TypeMismatch for floats, and for a signed by an unsigned integer. Division by zero gives no defined number.
    """
    a, b = meet(x, y, division=True)
    if a.value.type.is_float:
        raise TypeMismatch(f"// takes integers, got {a.dtype.code}", hint="use tl.floor(x / y) for floats")
    return emit(ew.IntDiv(a.value, b.value))


@builtin
def mod(x: Operand, y: Operand) -> tensor:
    """x % y of integers or floats, with the sign of x (C's % and fmod); f16 and bf16 are computed, and given, in f32.

    Raises TypeMismatch for a signed by an unsigned integer. An integer modulo zero gives no defined number.
    """
    a, b = meet(x, y, division=True)
    return emit(ew.Rem(a.value, b.value))


@operator
def negate(x: Operand) -> tensor:
    """-x in the type and shape of ``x``; integers wrap, and kernels with ``debug`` assert that they do not. Raises
    TypeMismatch for pointers."""
    x = as_tensor(x)
    scalar_of(x)
    return overflow.negated(x)


@builtin
def invert(x: Operand) -> tensor:
    """~x of integers, not x of int1; raises TypeMismatch for floats."""
    return emit(ew.Not(as_tensor(x).value))


def _integer_pair(x: Operand, y: Operand, sign: str) -> tuple[tensor, tensor]:
    a, b = meet(x, y)
    if a.value.type.is_float:
        raise TypeMismatch(
            f"invalid operands of type {element_of(x).code} and {element_of(y).code}: {sign} takes integers"
        )
    return a, b


def element_of(x: Operand) -> Element:
    """The element type of a tensor, or that which a number has by itself."""
    return x.dtype if isinstance(x, tensor) else scalar_of(x)


@builtin
def bit_and(x: Operand, y: Operand) -> tensor:
    """x & y in the common integer type and shape; raises TypeMismatch for floats."""
    a, b = _integer_pair(x, y, "&")
    return emit(ew.And(a.value, b.value))


@builtin
def bit_or(x: Operand, y: Operand) -> tensor:
    """x | y in the common integer type and shape; raises TypeMismatch for floats."""
    a, b = _integer_pair(x, y, "|")
    return emit(ew.Or(a.value, b.value))


@builtin
def bit_xor(x: Operand, y: Operand) -> tensor:
    """x ^ y in the common integer type and shape; raises TypeMismatch for floats."""
    a, b = _integer_pair(x, y, "^")
    return emit(ew.Xor(a.value, b.value))


def _warn_of_width(x: Operand, y: Operand) -> None:
    """As Triton does, of a number of bits that is known while compiling: one of a name is a scalar, as there."""
    if not isinstance(x, tensor) or not isinstance(y, int) or isinstance(y, Typed):
        return
    kind = scalar_type(x.dtype)
    if not kind.is_float and y >= kind.bits:
        width = counted(kind.bits, "bit")
        warn(f"a shift by {y} of {kind}, which has {width}, is undefined: convert to a wider type first")


@builtin
def shift_left(x: Operand, y: Operand) -> tensor:
    """x << y in the common integer type; amounts at or above the width of x are undefined, and warned of if known.

    Raises TypeMismatch for floats.
    """
    a, b = _integer_pair(x, y, "<<")
    _warn_of_width(x, y)
    return emit(ew.Shl(a.value, b.value))


@builtin
def shift_right(x: Operand, y: Operand) -> tensor:
    """x >> y in the common type of both: arithmetic for signed, logical for unsigned x, whatever y is.

    Raises TypeMismatch for floats.
    """
    a, b = _integer_pair(x, y, ">>")
    _warn_of_width(x, y)
    common = scalar_type(a.dtype)
    if scalar_of(x).is_signed and not common.is_signed:
        # An unsigned y made the common type unsigned; the sign of x decides all the same.
        signed = _SIGNED[common]
        return cast_to(emit(ew.Shr(cast_to(a, signed).value, cast_to(b, signed).value)), common)
    return emit(ew.Shr(a.value, b.value))


def promote_bf16(x: tensor) -> tensor:
    """bf16 as f32; anything else as it is."""
    return cast_to(x, F32) if x.dtype == BF16 else x
