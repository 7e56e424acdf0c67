"""Memory coalescing: the layout that a global access wants, neighbouring threads on neighbours, in wide vectors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

from ...hardware import SECTOR_BYTES, VECTOR_BYTES
from ...ir.core import Value
from ...ir.types import Tile
from ...layout import LinearLayout, SharedLayout, coalesced, contiguous_registers
from ...tile.axis import AxisFacts
from ...tile.memory import AtomicCAS, AtomicRMW, Load, Store
from ..asynchronous import FetchTile
from ..ops import VectorUpdate

MemoryOp = Load | Store | AtomicRMW | AtomicCAS
#: Elements between neighbours of which nothing is known: more than between any that are known.
_UNKNOWN = 1 << 62


@dataclass(frozen=True, slots=True)
class Access:
    """What the addresses of one access allow: axes with the most contiguous first, elements per vector along it.

    ``scattered``: neighbours are known along no axis, nor how far apart they mostly are, so that the order says
    nothing. ``loops``: how many are around it. ``tears``: it writes, and threads with more neighbours than ``vector``
    would write parts of sectors.
    """

    order: tuple[int, ...]
    vector: int
    scattered: bool = False
    loops: int = 0
    tears: bool = False

    @property
    def axis(self) -> int:
        return self.order[0]


def access_of(op: MemoryOp, facts: AxisFacts) -> Access:
    """The access pattern of ``op``, whose pointers are a tile."""
    pointer = op.pointer
    contiguity = facts[pointer].contiguity
    far = _distances(pointer, facts) if max(contiguity) == 1 else contiguity
    # Ties go to the last axis: tiles are written row-major by most kernels.
    order = tuple(sorted(range(pointer.type.rank), key=lambda d: (-contiguity[d], far[d], -d)))
    return Access(order, _widest(op, order[0], facts), max(contiguity) == 1 and len(set(far)) == 1)


def _distances(pointer: Value, facts: AxisFacts) -> list[float]:
    """How far apart neighbours along each axis mostly are, in elements, where they are not next to each other.

    Where they mostly have one address, as ``k // 8`` has for packed numbers, that counts as a sector: lanes that share
    out neighbours hold fewer numbers each than lanes that all read the same ones. Where they are sure to have one, as
    ``k // 64`` has for scales, a thread reads it once for all of its elements there, and lanes come last.
    """
    sector, constancy = SECTOR_BYTES // pointer.type.pointee.bytes, facts[pointer].constancy
    return [
        _UNKNOWN if step is None else abs(step) or (sector if equal == 1 else inf)
        for step, equal in zip(facts.steps[pointer], constancy, strict=True)
    ]


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


def order_in_shared_memory(tile: Tile, place: SharedLayout) -> Access:
    """The access pattern for a tile in shared memory: vectors of neighbours, the widest there are."""
    steps = place.offset
    axis = next(i for i, step in enumerate(steps[0]) if step)
    vector = 1
    for step in steps:
        if 2 * vector * tile.elem.bytes > VECTOR_BYTES or step[axis] != vector or sum(map(bool, step)) > 1:
            break
        vector *= 2
    return Access((axis, *(a for a in reversed(range(tile.rank)) if a != axis)), vector)


def vector_of(op: MemoryOp, layout: LinearLayout, facts: AxisFacts) -> tuple[int, int]:
    """(elements per vector, axis) that ``op`` can use in ``layout``."""
    best, best_axis = 1, layout.rank - 1
    for axis in range(layout.rank):
        width = min(contiguous_registers(layout, axis), _widest(op, axis, facts))
        if width > best:
            best, best_axis = width, axis
    return best, best_axis


def reaches_sectors(layout: LinearLayout, access: Access, element_bytes: int) -> bool:
    """Whether the neighbouring elements that a warp reaches with one instruction fill sectors: moving a part of one
    takes as long as moving all of it."""
    run = min(access.vector, contiguous_registers(layout, access.axis))
    steps = {basis[access.axis] for basis in layout.lane if sum(map(bool, basis)) == 1}
    while run in steps:
        run *= 2
    return run * element_bytes >= SECTOR_BYTES


def merge(
    accesses: Sequence[Access],
    shape: tuple[int, ...],
    warps: int,
    reduced: Collection[int] = (),
    scanned: Collection[int] = (),
) -> LinearLayout:
    """One layout for accesses whose tiles meet in elementwise code: no conversion between them is worth its cost.

    The widest access decides the order of the axes; among those of the same order the largest vector serves all, unless
    it tears what the innermost of them write: caches mend reads of parts of sectors, but each written part is moved by
    itself.

    The tile is ``reduced`` along these axes: there a thread combines its own elements for nothing, lanes need shuffles
    and warps shared memory, and every thread of a row keeps what the row comes to. So warps share out the other axes
    where the addresses leave it open, and lanes too where no order of the addresses is better than another. Warps also
    leave axes to others that are ``scanned``, but lanes share these out.
    """
    widest = max(accesses, key=lambda a: a.vector)
    order = widest.order
    alike = [a for a in accesses if a.order == order]
    innermost = max(a.loops for a in alike)
    whole = [a.vector for a in alike if a.tears and a.loops == innermost]
    vector = min([max(a.vector for a in alike), *whole])
    warp_order = _last(order, {*reduced, *scanned})
    if all(a.scattered for a in accesses):
        order = _last(order, reduced)
    return coalesced(shape, warps, vector, order, warp_order=warp_order)


def _last(order: Sequence[int], axes: Collection[int]) -> tuple[int, ...]:
    """``order`` with ``axes`` behind the others."""
    return (*(a for a in order if a not in axes), *(a for a in order if a in axes))


def default_layout(value: Value, warps: int) -> LinearLayout:
    """The layout of a tile that no memory access and no tensor core has a wish for."""
    shape = value.type.shape
    return coalesced(shape, warps, 4 if value.type.elem.bytes <= 4 else 2)
