"""Register layouts that a compiler chooses freely: blocked and coalesced ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from ..hardware import LANES
from .f2 import LayoutError, log2_exact
from .linear import DIMENSIONS, Coordinates, Dimension, LinearLayout, flatten


class Tiling:
    """Grows a layout from the inside out: each step gives hardware bits to the next bits of an axis.

    When an axis is exhausted, further lane, warp and block bits broadcast (zero basis) and register bits are
    left out, because a copy in the same thread is of no use.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self._covered = [1] * len(self.shape)
        self._bases: dict[Dimension, list[int]] = {name: [] for name in DIMENSIONS}

    def take(self, dimension: Dimension, axis: int, count: int) -> None:
        """Let ``log2(count)`` bits of ``dimension`` step along ``axis``."""
        for _ in range(log2_exact(count, f"{dimension} count {count}")):
            step = self._covered[axis]
            if step < self.shape[axis]:
                coordinates = [step if a == axis else 0 for a in range(len(self.shape))]
                self._bases[dimension].append(flatten(self.shape, coordinates))
            elif dimension != "register":
                self._bases[dimension].append(0)
            self._covered[axis] = 2 * step

    def broadcast(self, dimension: Dimension, count: int) -> None:
        """Let ``log2(count)`` bits of ``dimension`` hold copies."""
        self._bases[dimension] += [0] * log2_exact(count, f"{dimension} count {count}")

    def finish(self, order: Sequence[int]) -> LinearLayout:
        """Cover what is left of the tile with registers, along ``order`` (fastest axis first)."""
        for axis in order:
            if self._covered[axis] < self.shape[axis]:
                self.take("register", axis, self.shape[axis] // self._covered[axis])
        return LinearLayout(self.shape, *(tuple(self._bases[name]) for name in DIMENSIONS))


def row_major(rank: int) -> Coordinates:
    """The order with the last axis fastest."""
    return tuple(reversed(range(rank)))


def blocked(
    shape: Sequence[int],
    size_per_thread: Sequence[int],
    threads_per_warp: Sequence[int],
    warps_per_cta: Sequence[int],
    order: Sequence[int] | None = None,
) -> LinearLayout:
    """A box of elements per thread, a box of threads per warp, a box of warps.

    ``order``: axes, fastest first (default: last axis fastest). A tile larger than the box of boxes is covered
    by repeating it in further registers, fastest axis first. Where the tile is smaller, lanes and warps hold
    copies and surplus registers are dropped. Raises LayoutError for sizes that are not powers of two.
    """
    rank = len(shape)
    axes = row_major(rank) if order is None else tuple(order)
    sizes = (size_per_thread, threads_per_warp, warps_per_cta)
    if any(len(counts) != rank for counts in sizes) or sorted(axes) != list(range(rank)):
        raise LayoutError(f"blocked layout of {shape}: {sizes}, order {axes} do not have rank {rank}")
    tiling = Tiling(shape)
    names: tuple[Dimension, ...] = ("register", "lane", "warp")
    for name, counts in zip(names, sizes, strict=True):
        for axis in axes:
            tiling.take(name, axis, counts[axis])
    return tiling.finish(axes)


@lru_cache(maxsize=4096)
def _coalesced(
    shape: Coordinates, warps: int, vector: int, order: Coordinates, warp_order: Coordinates | None = None
) -> LinearLayout:
    tiling = Tiling(shape)
    left = {axis: shape[axis] for axis in order}
    counts: tuple[tuple[Dimension, int], ...] = (
        ("register", vector),
        ("lane", LANES),
        ("warp", warps),
    )
    for name, count in counts:
        axes = {"register": order[:1], "warp": warp_order or order}.get(name, order)
        for axis in axes:
            step = min(count, left[axis])
            tiling.take(name, axis, step)
            left[axis] //= step
            count //= step
        if name != "register":
            tiling.broadcast(name, count)
    return tiling.finish(order)


def coalesced(
    shape: Sequence[int],
    warps: int,
    vector: int = 1,
    order: Sequence[int] | None = None,
    warp_order: Sequence[int] | None = None,
) -> LinearLayout:
    """The blocked layout for global memory: ``vector`` elements a thread, lanes along the fastest axis first.

    ``order``: axes, fastest first (default: last axis fastest); ``warp_order``: the same for the warps, where they
    shall follow another one. ``vector`` is lowered to what one wave of
    threads can use and to the size of the fastest axis. Raises LayoutError unless sizes are powers of two.
    """
    for value, what in ((warps, "warps"), (vector, "vector")):
        log2_exact(value, what)
    axes = row_major(len(shape)) if order is None else tuple(order)
    # A vector so wide that threads would run out of elements only makes copies.
    vector = min(vector, max(1, prod(shape) // (LANES * warps)))
    return _coalesced(tuple(shape), warps, vector, axes, None if warp_order is None else tuple(warp_order))


def coalesced_vectors(shape: Sequence[int], warps: int, vector: int, order: Sequence[int]) -> LinearLayout:
    """As :func:`coalesced`, but every thread has whole vectors of ``vector`` elements along the fastest axis; where
    there are fewer of them than threads, several threads hold the same one.

    Raises LayoutError unless sizes are powers of two and a vector fits into the fastest axis.
    """
    log2_exact(vector, "vector")
    if vector > shape[order[0]]:
        raise LayoutError(f"vectors of {vector} elements along an axis of {shape[order[0]]}")
    return _coalesced(tuple(shape), warps, vector, tuple(order))


def contiguous_registers(layout: LinearLayout, axis: int = -1) -> int:
    """How many consecutive registers hold consecutive elements along ``axis``, starting at an aligned one.

    The result is a power of two; a load or store along that axis can be a vector of that many elements.
    """
    if not layout.shape:
        return 1
    position = axis % layout.rank
    stride = prod(layout.shape[position + 1 :])
    count = 1
    for basis in layout.flat_register:
        if count == layout.shape[position] or basis != count * stride:
            break
        count *= 2
    others = layout.columns
    low = (count - 1) * stride
    while count > 1 and any(basis & low for basis in others[count.bit_length() - 1 :]):
        count //= 2
        low = (count - 1) * stride
    return count
