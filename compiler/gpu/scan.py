"""How a prefix scan is laid out: the scanned axis never crosses warps.

Along the axis a thread has a few neighbouring elements, the lanes follow, and what is left repeats in registers. So a
scan is serial in each thread, takes five shuffles a round across the lanes, and carries a total from round to round; it
needs no shared memory. Warps share out the other axes, or hold copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..layout import LinearLayout
from ..layout.construct import LANES, Tiling

_MOST_PER_THREAD = 4


@lru_cache(maxsize=1024)
def scan_layout(shape: tuple[int, ...], axis: int, warps: int) -> LinearLayout:
    """The layout for a scan of a tile of ``shape`` along ``axis``."""
    tiling = Tiling(shape)
    length = shape[axis]
    per_thread = min(_MOST_PER_THREAD, max(1, length // LANES))
    lanes = min(LANES, length // per_thread)
    others = [a for a in reversed(range(len(shape))) if a != axis]
    tiling.take("register", axis, per_thread)
    tiling.take("lane", axis, lanes)
    left = dict(zip(others, (shape[a] for a in others), strict=True))
    for dimension, count in (("lane", LANES // lanes), ("warp", warps)):
        for other in others:
            step = min(count, left[other])
            tiling.take(dimension, other, step)  # type: ignore[arg-type]
            left[other] //= step
            count //= step
        tiling.broadcast(dimension, count)  # type: ignore[arg-type]
    return tiling.finish((axis, *others))


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """``rows``: for each position off the axis its rounds in order, each the registers of one thread in order.

    ``lanes``: lanes along the axis, the lowest lane bits.
    """

    rows: tuple[tuple[tuple[int, ...], ...], ...]
    lanes: int


@lru_cache(maxsize=1024)
def plan_scan(layout: LinearLayout, axis: int) -> ScanPlan:
    """The steps of a scan along ``axis`` of a tile in its ``scan_layout``."""
    lanes = 1 << sum(bool(basis[axis]) for basis in layout.lane)
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
    return ScanPlan(tuple(made), lanes)
