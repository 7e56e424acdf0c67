"""Arithmetic on chunks that stay scalars or arithmetic progressions, so that contiguity survives to the access."""

from __future__ import annotations

from ...ir.core import Op
from ...ir.types import Pointer, Scalar
from ...llvm.typed import Emitter, Typed, lane_numbers
from ...tile import elementwise as ops
from . import elementwise
from .chunk import Affine, Chunk, Uniform, Vector, power_of_two_divisor


def vectorized(e: Emitter, chunk: Chunk, lanes: int) -> Typed:
    """The chunk as one vector of ``lanes`` lanes (a scalar for one lane)."""
    if isinstance(chunk, Vector):
        return chunk.value
    if isinstance(chunk, Uniform):
        return chunk.value if lanes == 1 else e.splat(chunk.value, lanes)
    if chunk.base.type == "ptr":
        return e.offset(chunk.base, lane_numbers(lanes, "i64", chunk.stride), "i8")
    steps = lane_numbers(lanes, chunk.base.type, chunk.stride)
    return e.binary("add", e.splat(chunk.base, lanes), steps)


def divisor_of(op: Op, args: list[Uniform]) -> int:
    """A power of two that divides the scalar result of ``op``; 1 for what is made of floats."""
    if any(v.type.is_float for v in op.operands):
        return 1
    divisors = [a.divisor for a in args]
    match op:
        case ops.Add() | ops.Sub() | ops.Min() | ops.Max():
            return min(divisors)
        case ops.Mul():
            return min(1 << 30, divisors[0] * divisors[1])
        case ops.Cast() | ops.Neg():
            return divisors[0]
        case ops.Rem():
            return min(divisors)
        case ops.Select():
            return min(divisors[1:])
        case ops.Hint() if op.divisibility:
            return max(divisors[0], power_of_two_divisor(op.divisibility[0]))
    return 1


def known_number(op: Op, args: list[Uniform]) -> int | float | None:
    """The value of a scalar result where it is known without computing."""
    match op:
        case ops.Constant():
            return op.value
        case ops.Hint():
            return args[0].number
        case ops.Cast() if isinstance(args[0].number, int) and not isinstance(op.to, Pointer):
            least = -(1 << 31) if op.to.is_signed else 0
            fits = op.to.is_integer and op.to.bits >= 32 and least <= args[0].number < 1 << 31
            return args[0].number if fits else None
    return None


def structured(e: Emitter, op: Op, args: list[Chunk], lanes: int, level: int) -> Chunk | None:
    """The result of ``op`` where it is a progression or uniform although an operand is a progression, else None."""
    if isinstance(op, ops.Hint):
        return _promised(e, op, args[0], lanes, level)
    if any(isinstance(a, Vector) for a in args):
        return None
    match op:
        case ops.Add() | ops.Sub():
            left, right = _stride(args[0]), _stride(args[1])
            stride = left + right if isinstance(op, ops.Add) else left - right
            divisor = min(_divisor(args[0]), _divisor(args[1]))
        case ops.Mul():
            factor = next((a.number for a in args if isinstance(a, Uniform)), None)
            if not isinstance(factor, int):
                return None
            stride = factor * (_stride(args[0]) or _stride(args[1]))
            divisor = _divisor(args[0]) * _divisor(args[1])
        case ops.Shl() if isinstance(args[1], Uniform) and isinstance(args[1].number, int):
            amount = args[1].number
            if not 0 <= amount < op.lhs.type.scalar.bits:
                return None
            stride, divisor = _stride(args[0]) << amount, min(_divisor(args[0]) << amount, 1 << 30)
        case ops.Cast() if _between_integers(op):
            source = op.x.type.scalar
            if op.result.type.scalar.bits > source.bits and not _stays_within(args[0], lanes, source.bits):
                return None
            stride, divisor = _stride(args[0]), _divisor(args[0])
        case ops.AddPtr():
            index = op.offset.type.scalar
            # Addresses may take it that signed integers of 32 bits do not overflow (see tile/axis).
            wraps = index.bits < 32 or (index.bits < 64 and not index.is_signed)
            if wraps and not _stays_within(args[1], lanes, index.bits):
                return None
            size = op.pointer.type.pointee.bytes
            stride, divisor = _stride(args[0]) + _stride(args[1]) * size, 1
        case _:
            return None
    if not _is_integral(op):
        return None
    base = elementwise.rules.find(op)(e, op, *(_base(a) for a in args))
    if stride == 0:
        return Uniform(base, level, divisor=divisor)
    return Affine(base, stride, level, min(divisor, 1 << 30))


def _promised(e: Emitter, op: ops.Hint, x: Chunk, lanes: int, level: int) -> Chunk:
    if isinstance(x, Vector) and op.x.type.rank:
        if op.contiguity and op.contiguity[-1] >= lanes:
            elem = op.x.type.elem
            stride = elem.pointee.bytes if isinstance(elem, Pointer) else 1
            return Affine(e.extract(x.value, 0), stride, level)
        if op.constancy and op.constancy[-1] >= lanes:
            return Uniform(e.extract(x.value, 0), level)
    return x


def _between_integers(op: ops.Cast) -> bool:
    source, to = op.x.type.elem, op.to
    return (
        isinstance(source, Scalar)
        and isinstance(to, Scalar)
        and source.is_integer
        and to.is_integer
        and min(source.bits, to.bits) > 1
    )


def _is_integral(op: Op) -> bool:
    elem = op.operands[0].type.elem
    return isinstance(elem, Pointer) or (elem.is_integer and elem.bits > 1)


def _stride(chunk: Chunk) -> int:
    return chunk.stride if isinstance(chunk, Affine) else 0


def _stays_within(chunk: Chunk, lanes: int, bits: int) -> bool:
    """Whether the lanes of integers of ``bits`` bits go on counting when they are widened: none of them wraps, because
    they begin at a multiple of a power of two and stay below the next multiple."""
    if not isinstance(chunk, Affine):
        return True
    span = 1 << ((lanes - 1) * chunk.stride).bit_length()
    return chunk.stride > 0 and chunk.divisor % span == 0 and span < 1 << bits


def _divisor(chunk: Chunk) -> int:
    return 1 if isinstance(chunk, Vector) else chunk.divisor


def _base(chunk: Chunk) -> Typed:
    match chunk:
        case Affine():
            return chunk.base
        case _:
            return chunk.value
