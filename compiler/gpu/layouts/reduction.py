"""How reductions and scans run on a layout.

A reduction combines inside threads, then inside warps, then across warps through shared memory.

A scanned axis never crosses warps, so a scan needs no shared memory: it is serial in each thread, takes shuffles across
lanes, and carries a total from round to round. Warps share out the other axes, or hold copies. Along the last axis,
whose neighbours are neighbours in memory, a thread has a few elements, all lanes follow, and what is left repeats in
registers. Along another axis lanes go to the others first, for the sake of memory and of shuffles, and a thread has all
its elements in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ...ir.types import Tile
from ...layout import LinearLayout, slice_layout
from ...layout.access import element_bytes_of
from ...layout.construct import LANES, Tiling
from ...layout.linear import Dimension

_MOST_PER_THREAD = 4
#: What a thread reads from shared memory by one instruction.
_READ_BYTES = 16


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """The steps for one layout and axis.

    ``groups``: registers of the operand that are combined with each other, one tuple per distinct position of the
    result; ``group_of``: the group of every register of the result layout. ``lane_bits``: lane bits to combine over by
    butterfly shuffles. ``warp_bits``: warp bits to combine over through shared memory; ``partials`` (their number of
    values) stand next to each other for every element of the result.
    """

    groups: tuple[tuple[int, ...], ...]
    group_of: tuple[int, ...]
    lane_bits: tuple[int, ...]
    warp_bits: tuple[int, ...]
    result: LinearLayout

    @property
    def partials(self) -> int:
        """How many values of one element warps bring together: a power of two."""
        return 1 << len(self.warp_bits)

    def share_of(self, element_bytes: int) -> tuple[int, tuple[int, ...]]:
        """How many of an element's partials a lane reads, and the lane bits over which the rest is exchanged.

        Lanes that get the same result would read the same partials and add them up all alike: with 32 warps 8 reads, 31
        sums and as many registers, where one read of 16 bytes each, 3 sums and 3 shuffles do.
        """
        sharing: tuple[int, ...] = ()
        each = self.partials
        for bit in self.lane_bits:
            if each * element_bytes > _READ_BYTES:
                sharing += (bit,)
                each //= 2
        return each, sharing

    def scratch_bytes(self, element_bits: int) -> int:
        """Shared memory for one operand, rounded up to 16 bytes; 0 when no data crosses warps."""
        if not self.warp_bits:
            return 0
        return -(-self.result.size * self.partials * element_bytes_of(element_bits) // 16) * 16


@lru_cache(maxsize=2048)
def plan_reduction(layout: LinearLayout, axis: int) -> ReductionPlan:
    """The steps that reduce a tile of ``layout`` along ``axis``; every basis moves along the axis only or not at
    all."""
    result = slice_layout(layout, axis)
    positions = result.register_offsets()
    seen: set[int] = set()
    members: dict[int, list[int]] = {}
    for register, flat in enumerate(layout.register_offsets()):
        if flat not in seen:
            seen.add(flat)
            members.setdefault(positions[register], []).append(register)
    index = {position: i for i, position in enumerate(members)}
    return ReductionPlan(
        groups=tuple(tuple(m) for m in members.values()),
        group_of=tuple(index[p] for p in positions),
        lane_bits=tuple(bit for bit, basis in enumerate(layout.lane) if basis[axis]),
        warp_bits=tuple(bit for bit, basis in enumerate(layout.warp) if basis[axis]),
        result=result,
    )


def bits_of(type: Tile) -> int:
    """Bits of one element of ``type`` in shared memory."""
    return type.elem.bits


@lru_cache(maxsize=1024)
def scan_layout(shape: tuple[int, ...], axis: int, warps: int) -> LinearLayout:
    """The layout for a scan of a tile of ``shape`` along ``axis``."""
    tiling = Tiling(shape)
    length = shape[axis]
    others = [a for a in reversed(range(len(shape))) if a != axis]
    left = dict(zip(others, (shape[a] for a in others), strict=True))

    def share_out(dimension: Dimension, count: int) -> None:
        for other in others:
            step = min(count, left[other])
            tiling.take(dimension, other, step)
            left[other] //= step
            count //= step
        tiling.broadcast(dimension, count)

    if axis == len(shape) - 1:
        per_thread = min(_MOST_PER_THREAD, max(1, length // LANES))
        lanes = min(LANES, length // per_thread)
        tiling.take("register", axis, per_thread)
        tiling.take("lane", axis, lanes)
        share_out("lane", LANES // lanes)
    else:
        vector = min(_MOST_PER_THREAD, left[others[0]])
        tiling.take("register", others[0], vector)
        left[others[0]] //= vector
        free = min(LANES, max(1, prod(left.values()) // warps))  # lanes that need not scan
        lanes = min(LANES // free, length)
        share_out("lane", free)
        tiling.take("register", axis, length // lanes)
        tiling.take("lane", axis, lanes)
        tiling.broadcast("lane", LANES // (free * lanes))
    share_out("warp", warps)
    return tiling.finish((axis, *others))


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """``rows``: for each position off the axis its rounds in order, each the registers of one thread in order.

    ``lanes``: lanes along the axis, neighbouring bits of the lane's number from ``step`` on.
    """

    rows: tuple[tuple[tuple[int, ...], ...], ...]
    lanes: int
    step: int


@lru_cache(maxsize=1024)
def plan_scan(layout: LinearLayout, axis: int) -> ScanPlan:
    """The steps of a scan along ``axis`` of a tile in its ``scan_layout``."""
    along = [1 << bit for bit, basis in enumerate(layout.lane) if basis[axis]]
    per_thread = min((b[axis] for b in layout.lane if b[axis]), default=layout.shape[axis])
    rows: dict[tuple[int, ...], dict[int, int]] = {}
    for register, coordinates in enumerate(layout.register_coordinates()):
        off_axis = (*coordinates[:axis], *coordinates[axis + 1 :])
        rows.setdefault(off_axis, {}).setdefault(coordinates[axis], register)
    made = []
    for row in rows.values():
        ordered = [row[position] for position in sorted(row)]
        rounds = range(0, len(ordered), per_thread)
        made.append(tuple(tuple(ordered[i : i + per_thread]) for i in rounds))
    return ScanPlan(tuple(made), 1 << len(along), min(along, default=1))
