"""How scans run on a layout of their own.

A scan is serial in each thread and takes shuffles across lanes. Warps share out the other axes, so that no row crosses
warps: then a total is carried from round to round, and no shared memory is needed. Warps that are left over share out
the scanned axis, unless it is short: each scans its part of every round by itself, all parts' totals change hands once,
through shared memory, and what came before a part is put before its elements.

Along the last axis, whose neighbours are neighbours in memory, a thread has a few elements, all lanes follow, then
warps, and what is left repeats in registers, as tiles are read from memory: then nothing is converted. Along another
axis lanes go to the others first, for the sake of memory and of shuffles, and a thread has all its elements in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ...hardware import LANES, VECTOR_BYTES
from ...layout import LinearLayout, contiguous_registers, slice_layout
from ...layout.construct import Tiling
from ...layout.linear import Dimension
from .reduction import scratch_bytes

#: Neighbours that a thread has in one round; lanes that have no more in all need no help of other warps.
_MOST_PER_THREAD = 4
#: As many neighbours as a thread loads are better, for then nothing is converted. Of more than these a store would
#: write parts of sectors, so they would change threads there.
_MOST_LOADED = 8


def scan_layout(shape: tuple[int, ...], axis: int, warps: int, given: LinearLayout | None = None) -> LinearLayout:
    """The layout for a scan along ``axis`` of a tile of ``shape``, which comes in the layout ``given``, if that is
    known."""
    neighbours = 1 if given is None else contiguous_registers(given, axis)
    known = _MOST_PER_THREAD <= neighbours <= min(_MOST_LOADED, max(1, prod(shape) // (LANES * warps)))
    return _scan_layout(shape, axis, warps, neighbours if known else None)


@lru_cache(maxsize=1024)
def _scan_layout(shape: tuple[int, ...], axis: int, warps: int, neighbours: int | None) -> LinearLayout:
    """The same, with so many ``neighbours`` to a thread along the last axis; None: as few as leave no lane idle."""
    tiling = Tiling(shape)
    length = shape[axis]
    others = [a for a in reversed(range(len(shape))) if a != axis]
    left = dict(zip(others, (shape[a] for a in others), strict=True))

    def share_out(dimension: Dimension, count: int) -> int:
        """Of ``count`` how many are left over."""
        for other in others:
            step = min(count, left[other])
            tiling.take(dimension, other, step)
            left[other] //= step
            count //= step
        return count

    def along(lanes: int) -> int:
        """Warps along the axis beside so many lanes."""
        spare = max(1, warps // prod(left.values()))
        return min(spare, length // lanes) if length > lanes * _MOST_PER_THREAD else 1

    if axis == len(shape) - 1:
        helpers = along(LANES)
        per_thread = neighbours or min(_MOST_PER_THREAD, max(1, length // (LANES * helpers)))
        lanes = min(LANES, length // per_thread)
        tiling.take("register", axis, per_thread)
        tiling.take("lane", axis, lanes)
        tiling.broadcast("lane", share_out("lane", LANES // lanes))
    else:
        vector = min(_MOST_PER_THREAD, left[others[0]])
        tiling.take("register", others[0], vector)
        left[others[0]] //= vector
        free = min(LANES, max(1, prod(left.values()) // warps))  # lanes that need not scan
        lanes = min(LANES // free, length)
        share_out("lane", free)
        helpers = along(lanes)
        tiling.take("register", axis, length // (lanes * helpers))
        tiling.take("lane", axis, lanes)
        tiling.broadcast("lane", LANES // (free * lanes))
    idle = share_out("warp", warps)
    tiling.take("warp", axis, helpers)
    tiling.broadcast("warp", idle // helpers)
    return tiling.finish((axis, *others))


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """``rows``: for each position off the axis its rounds in order, each the registers of one thread in order.

    ``lanes``: lanes along the axis, neighbouring bits of the lane's number from ``step`` on; ``warps`` and
    ``warp_step``: the same of warps. ``positions``: where thread 0 has each row, an index in ``result``, the layout of
    the tile without the axis.
    """

    rows: tuple[tuple[tuple[int, ...], ...], ...]
    lanes: int
    step: int
    warps: int
    warp_step: int
    positions: tuple[int, ...]
    result: LinearLayout

    @property
    def parts(self) -> int:
        """Into how many parts, one a warp and round, a row falls whose warps tell each other their totals."""
        return self.warps * len(self.rows[0])

    def share_of(self, element_bytes: int) -> int:
        """How many of a row's totals a lane reads: all, where that takes two instructions; else by one instruction, if
        there are lanes enough to go on from there by shuffles."""
        if self.parts * element_bytes <= 2 * VECTOR_BYTES:
            return self.parts
        return max(self.parts // self.lanes, VECTOR_BYTES // element_bytes)

    def scratch_bytes(self, element_bits: int) -> int:
        """Shared memory for the totals of one operand; 0 when no row crosses warps."""
        return 0 if self.warps == 1 else scratch_bytes(self.result.size * self.parts, element_bits)


@lru_cache(maxsize=1024)
def plan_scan(layout: LinearLayout, axis: int) -> ScanPlan:
    """The steps of a scan along ``axis`` of a tile in its ``scan_layout``."""
    lanes = [1 << bit for bit, basis in enumerate(layout.lane) if basis[axis]]
    warps = [1 << bit for bit, basis in enumerate(layout.warp) if basis[axis]]
    steps = [basis[axis] for basis in (*layout.lane, *layout.warp) if basis[axis]]
    per_thread = min(steps, default=layout.shape[axis])
    result = slice_layout(layout, axis)
    offsets = result.register_offsets()
    rows: dict[int, dict[int, int]] = {}
    for register, coordinates in enumerate(layout.register_coordinates()):
        rows.setdefault(offsets[register], {}).setdefault(coordinates[axis], register)
    made = []
    for row in rows.values():
        ordered = [row[position] for position in sorted(row)]
        rounds = range(0, len(ordered), per_thread)
        made.append(tuple(tuple(ordered[i : i + per_thread]) for i in rounds))
    return ScanPlan(
        rows=tuple(made),
        lanes=1 << len(lanes),
        step=min(lanes, default=1),
        warps=1 << len(warps),
        warp_step=min(warps, default=1),
        positions=tuple(rows),
        result=result,
    )
