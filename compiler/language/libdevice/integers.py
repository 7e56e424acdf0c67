"""Bits and integers of 32 and 64 bits; narrower integers count as int32."""

from __future__ import annotations

from ...errors import TypeMismatch
from ...ir.types import I32, U32, U64, Scalar
from ...tile import elementwise as ew
from ..arithmetic import as_tensor, cast_to, meet
from ..builtin import builtin
from ..conditions import where
from ..tensor import Operand, emit, tensor
from .bits import UNSIGNED, given, reinterpret

# Which bits are the lower half of each group of 2, 4, 8, 16, 32 bits.
_HALVES = {
    1: 0x5555555555555555,
    2: 0x3333333333333333,
    4: 0x0F0F0F0F0F0F0F0F,
    8: 0x00FF00FF00FF00FF,
    16: 0x0000FFFF0000FFFF,
    32: 0x00000000FFFFFFFF,
}


def _whole(x: Operand, function: str) -> tensor:
    x = as_tensor(x)
    if not isinstance(x.dtype, Scalar) or not x.dtype.is_integer:
        raise TypeMismatch(
            f"libdevice.{function} takes integers, got {x.value.type}", hint="cast it with .to(tl.int32)"
        )
    return cast_to(x, I32) if x.dtype.bits < 32 else x


def _unsigned(x: tensor) -> tensor:
    return reinterpret(x, UNSIGNED.get(x.dtype, x.dtype))


def _half(distance: int, bits: int) -> int:
    return _HALVES[distance] & ((1 << bits) - 1)


def _ones(x: tensor) -> tensor:
    """How many bits of an unsigned integer are set, in its type: sums of neighbours, doubling their width."""
    for distance in _HALVES:
        if distance < x.dtype.bits:
            mask = _half(distance, x.dtype.bits)
            x = (x & mask) + ((x >> distance) & mask)
    return x


@builtin
def popc(x: Operand) -> tensor:
    """How many bits of ``x`` are set, as int32 in its shape; raises TypeMismatch for floats."""
    return cast_to(_ones(_unsigned(_whole(x, "popc"))), I32)


@builtin
def clz(x: Operand) -> tensor:
    """How many bits above the highest that is set are 0, as int32: the width for 0. Raises TypeMismatch for floats."""
    x = _unsigned(_whole(x, "clz"))
    for distance in _HALVES:
        if distance < x.dtype.bits:
            x = x | (x >> distance)
    return cast_to(_ones(~x), I32)


@builtin
def ffs(x: Operand) -> tensor:
    """The place of the lowest bit that is set, counted from 1, as int32; 0 for 0. Raises TypeMismatch for floats."""
    x = _unsigned(_whole(x, "ffs"))
    return where(x == 0, 0, cast_to(_ones(x ^ (x - 1)), I32))


@builtin
def brev(x: Operand) -> tensor:
    """The bits of ``x`` in the opposite order, in its type; raises TypeMismatch for floats."""
    x = _whole(x, "brev")
    reversed = _unsigned(x)
    for distance in _HALVES:
        if distance < x.dtype.bits:
            mask = _half(distance, x.dtype.bits)
            reversed = ((reversed >> distance) & mask) | ((reversed & mask) << distance)
    return reinterpret(reversed, x.dtype)


@builtin
def byte_perm(x: Operand, y: Operand, s: Operand) -> tensor:
    """int32 of four bytes of (y, x): byte i is the one that the lower three bits of the i-th nibble of ``s`` number.

    Bytes 0 to 3 are those of ``x``, lowest first, 4 to 7 those of ``y``. Raises TypeMismatch unless all are integers of
    32 bits or less.
    """
    low, high, s = (given(v, U32, "byte_perm") for v in (x, y, s))
    both = cast_to(low, U64) | (cast_to(high, U64) << 32)
    made = cast_to(s, U64) * 0
    for i in range(4):
        place = cast_to((s >> 4 * i) & 7, U64) * 8
        made = made | (((both >> place) & 255) << 8 * i)
    return reinterpret(cast_to(made, U32), I32)


@builtin
def mulhi(x: Operand, y: Operand) -> tensor:
    """The upper half of the double-width product, in the common type; raises TypeMismatch for floats."""
    a, b = meet(_whole(x, "mulhi"), _whole(y, "mulhi"))
    return emit(ew.MulHigh(a.value, b.value))


@builtin
def mul24(x: Operand, y: Operand) -> tensor:
    """The lower 32 bits of the product of the lower 24 bits (signed: of two's complement) of 32-bit integers.

    Raises TypeMismatch for floats and wider integers.
    """
    a, b = meet(_whole(x, "mul24"), _whole(y, "mul24"))
    if a.dtype.bits != 32:
        raise TypeMismatch(f"libdevice.mul24 takes integers of 32 bits, got {a.value.type}")
    return ((a << 8) >> 8) * ((b << 8) >> 8)


@builtin
def sad(x: Operand, y: Operand, z: Operand) -> tensor:
    """|x - y| + z modulo 2**32, in the common type of ``x`` and ``y``, which has 32 bits.

    Raises TypeMismatch for floats and wider integers.
    """
    a, b = meet(_whole(x, "sad"), _whole(y, "sad"))
    if a.dtype.bits != 32:
        raise TypeMismatch(f"libdevice.sad takes integers of 32 bits, got {a.value.type}")
    return where(a > b, a - b, b - a) + given(z, a.dtype, "sad")


@builtin
def hadd(x: Operand, y: Operand) -> tensor:
    """(x + y) / 2 rounded down, without overflow, in the common type; raises TypeMismatch for floats."""
    a, b = meet(_whole(x, "hadd"), _whole(y, "hadd"))
    return (a & b) + ((a ^ b) >> 1)


@builtin
def rhadd(x: Operand, y: Operand) -> tensor:
    """(x + y + 1) / 2 rounded down, without overflow, in the common type; raises TypeMismatch for floats."""
    a, b = meet(_whole(x, "rhadd"), _whole(y, "rhadd"))
    return (a | b) - ((a ^ b) >> 1)


__all__ = ["brev", "byte_perm", "clz", "ffs", "hadd", "mul24", "mulhi", "popc", "rhadd", "sad"]
