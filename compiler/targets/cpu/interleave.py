"""Which loads may wait for the store of what is made of them, to be done with it chunk by chunk.

A chunk that is stored must not be one that is still to be loaded. That is so where load and store have one pointer,
whose elements are all different; of two pointers the generated code finds out: :func:`in_turns`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from ...ir.core import Value
from ...llvm.typed import Emitter, Typed, constant
from ...tile import elementwise as ops
from ...tile import memory, shape
from .chunk import ZERO, Coord
from .emission import Emission

if TYPE_CHECKING:
    from .lower import CpuLowering


def may_interleave(load: memory.Load, store: memory.Store) -> bool:
    """Whether each chunk of ``load`` may be read just before the same chunk of ``store`` is written, at least where
    :func:`in_turns` is true."""
    written = _moving(store.pointer)
    if written is None or not all(d in written for d, n in enumerate(store.pointer.type.shape) if n > 1):
        return False
    return load.pointer is store.pointer or _moving(load.pointer) is not None


def in_turns(low: CpuLowering, loads: Iterable[memory.Load], store: memory.Store) -> Typed | None:
    """Whether ``loads``, which may interleave with ``store``, do so rightly, as an i1 that is computed here; None where
    that is known.

    What a load reads has to be apart from what is written, or the same element by element. Elements that are masked off
    count, so it may be false where they alone overlap.
    """
    others = {load.pointer: load.result.type.elem.bytes for load in loads if load.pointer is not store.pointer}
    if not others:
        return None
    written = _Span.of(low, store.pointer, store.value.type.elem.bytes)
    clear = [_Span.of(low, pointer, size).keeps_clear_of(low.e, written) for pointer, size in others.items()]
    return reduce(lambda x, y: low.e.binary("and", x, y), clear)


@dataclass(frozen=True, slots=True)
class _Span:
    """What a tile of pointers that goes in equal steps covers. ``first``: the address of its element 0, ``reach``: how
    far the last element of each dimension is from there, ``low`` and ``high``: its first byte and the one behind its
    last; all are i64."""

    first: Typed
    reach: tuple[Typed, ...]
    low: Typed
    high: Typed

    @classmethod
    def of(cls, lowering: CpuLowering, pointer: Value, size: int) -> _Span:
        """The span of ``pointer``, each to ``size`` bytes."""
        e, sizes = lowering.e, pointer.type.shape
        emission = Emission(lowering, 1, {})

        def address(*far: int) -> Typed:
            coords = tuple(Coord(Typed("i32", str(n - 1)), 0, 0, 1) if d in far else ZERO for d, n in enumerate(sizes))
            return e.cast("ptrtoint", emission.vector(pointer, coords), "i64")

        first = address()
        reach = tuple([e.binary("sub", address(d), first) for d, n in enumerate(sizes) if n > 1])
        emission.finish()
        low, high = first, e.binary("add", first, constant("i64", size))
        for step in reach:
            back = e.compare("slt", step, constant("i64", 0))
            low = e.binary("add", low, e.select(back, step, constant("i64", 0)))
            high = e.binary("add", high, e.select(back, constant("i64", 0), step))
        return cls(first, reach, low, high)

    def keeps_clear_of(self, e: Emitter, other: _Span) -> Typed:
        """Whether both have no byte in common, or all elements, each at its place."""
        before, behind = e.compare("ule", self.high, other.low), e.compare("ule", other.high, self.low)
        pairs = zip((self.first, *self.reach), (other.first, *other.reach), strict=True)
        equal = reduce(lambda x, y: e.binary("and", x, y), [e.compare("eq", mine, its) for mine, its in pairs])
        return e.binary("or", e.binary("or", before, behind), equal)


def _moving(value: Value) -> frozenset[int] | None:
    """The dimensions along which ``value`` goes in equal steps, one term for each; None for anything else.

    Steps that are arguments are taken not to be 0, and not to lead from one row into the next.
    """
    op = value.op
    match op:
        case _ if not value.type.rank:
            return frozenset()
        case ops.Constant() | shape.Splat():
            return frozenset()
        case shape.Arange():
            return frozenset({0})
        case ops.Hint() | ops.Cast() | ops.Bitcast() | shape.Broadcast():
            return _moving(op.x)
        case shape.ExpandDims():
            inner = _moving(op.x)
            return inner and frozenset(d + (d >= op.axis) for d in inner)
        case shape.Permute():
            inner = _moving(op.x)
            return inner and frozenset(d for d, source in enumerate(op.order) if source in inner)
        case ops.AddPtr():
            return _joined(_moving(op.pointer), _moving(op.offset))
        case ops.Add() | ops.Sub():
            return _joined(_moving(op.lhs), _moving(op.rhs))
        case ops.Mul():
            x, y = _moving(op.lhs), _moving(op.rhs)
            return _joined(x, y) if x == frozenset() or y == frozenset() else None
    return None


def _joined(x: frozenset[int] | None, y: frozenset[int] | None) -> frozenset[int] | None:
    """The dimensions of a sum: two terms along one dimension may cancel out."""
    return None if x is None or y is None or x & y else x | y
