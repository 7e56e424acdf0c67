"""Which layout a global memory access wants: neighbouring threads on neighbouring addresses, in wide vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.core import Value
from ..layout import LinearLayout, coalesced, contiguous_registers
from ..tile.axis import AxisFacts
from ..tile.memory import AtomicCAS, AtomicRMW, Load, Store
from .asynchronous import FetchTile
from .ops import VectorUpdate

#: Widest access of one thread in bytes (ld.global.v4.b32).
VECTOR_BYTES = 16

MemoryOp = Load | Store | AtomicRMW | AtomicCAS


@dataclass(frozen=True, slots=True)
class Access:
    """What the addresses of one access allow: axes with the most contiguous first, elements per vector along it."""

    order: tuple[int, ...]
    vector: int

    @property
    def axis(self) -> int:
        return self.order[0]


def access_of(op: MemoryOp, facts: AxisFacts) -> Access:
    """The access pattern of ``op``, whose pointers are a tile."""
    pointer = op.pointer
    contiguity = facts[pointer].contiguity
    # Ties go to the last axis: tiles are written row-major by most kernels.
    order = tuple(sorted(range(pointer.type.rank), key=lambda d: (-contiguity[d], -d)))
    return Access(order, _widest(op, order[0], facts))


def _widest(op: MemoryOp, axis: int, facts: AxisFacts) -> int:
    if isinstance(op, AtomicRMW | AtomicCAS) and not isinstance(op, VectorUpdate):
        return 1
    most = op.vector if isinstance(op, VectorUpdate) else VECTOR_BYTES // op.pointer.type.pointee.bytes
    vector = min(facts[op.pointer].aligned(axis), most)
    if op.mask is not None:
        vector = min(vector, facts[op.mask].constancy[axis])
    return max(1, vector)


def order_of_fetch(op: FetchTile) -> Access:
    """The access pattern of copies by threads: what was found when they were made."""
    return Access((op.axis, 1 - op.axis), op.vector)


def vector_of(op: MemoryOp, layout: LinearLayout, facts: AxisFacts) -> tuple[int, int]:
    """(elements per vector, axis) that ``op`` can use in ``layout``."""
    best, best_axis = 1, layout.rank - 1
    for axis in range(layout.rank):
        width = min(contiguous_registers(layout, axis), _widest(op, axis, facts))
        if width > best:
            best, best_axis = width, axis
    return best, best_axis


def merge(accesses: Sequence[Access], shape: tuple[int, ...], warps: int) -> LinearLayout:
    """One layout for accesses whose tiles meet in elementwise code: no conversion between them is worth its cost.

    The widest access decides the order of the axes; among those of the same order the largest vector serves all.
    """
    widest = max(accesses, key=lambda a: a.vector)
    vector = max(a.vector for a in accesses if a.order == widest.order)
    return coalesced(shape, warps, vector, widest.order)


def default_layout(value: Value, warps: int) -> LinearLayout:
    """The layout of a tile that no memory access and no tensor core has a wish for."""
    shape = value.type.shape
    return coalesced(shape, warps, 4 if value.type.elem.bytes <= 4 else 2)
