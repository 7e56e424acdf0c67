"""How a layout follows an operation that moves no data.

For each function the registers of the operand become those of the result as the docstring says, so that a
back end renames values and emits nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from .f2 import Echelon, LayoutError, log2_exact
from .linear import Coordinates, LinearLayout, flatten, unflatten


def _map_coordinates(layout: LinearLayout, shape: Coordinates, axes: Sequence[int | None]) -> LinearLayout:
    """Coordinate i of the result is coordinate ``axes[i]`` of the operand, or zero for None."""

    def move(flat: int) -> int:
        coordinates = unflatten(layout.shape, flat)
        return flatten(shape, [0 if axis is None else coordinates[axis] for axis in axes])

    return layout.with_columns(shape, tuple(move(flat) for flat in layout.columns))


def _axis(layout: LinearLayout, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise LayoutError(f"axis {axis} does not exist in rank {rank} (layout {layout})")
    return axis % rank


@lru_cache(maxsize=4096)
def permute_layout(layout: LinearLayout, order: Coordinates) -> LinearLayout:
    """Dimension i of the result is dimension ``order[i]`` of the operand; registers stay in place."""
    if sorted(order) != list(range(layout.rank)):
        raise LayoutError(f"{order} is not a permutation of the {layout.rank} axes of {layout}")
    return _map_coordinates(layout, tuple(layout.shape[axis] for axis in order), order)


@lru_cache(maxsize=4096)
def reshape_layout(layout: LinearLayout, shape: Coordinates) -> LinearLayout:
    """Row-major reshape: regroups the bits of the linear index; registers stay in place."""
    if prod(shape) != layout.size:
        raise LayoutError(f"cannot reshape {layout.shape} to {shape}")
    return layout.with_columns(shape, layout.columns)


@lru_cache(maxsize=4096)
def expand_dims_layout(layout: LinearLayout, axis: int) -> LinearLayout:
    """Insert a dimension of size 1 at ``axis``; registers stay in place. ``slice_layout`` undoes it."""
    position = _axis(layout, axis, layout.rank + 1)
    shape = (*layout.shape[:position], 1, *layout.shape[position:])
    return layout.with_columns(shape, layout.columns)


@lru_cache(maxsize=4096)
def slice_layout(layout: LinearLayout, axis: int) -> LinearLayout:
    """Forget the coordinate ``axis``, as the result of a reduction does.

    Bits that moved along the axis become broadcast bits; registers stay in place, and
    ``remove_register_broadcast`` drops the copies.
    """
    position = _axis(layout, axis, layout.rank)
    kept = [a for a in range(layout.rank) if a != position]
    return _map_coordinates(layout, tuple(layout.shape[a] for a in kept), kept)


@lru_cache(maxsize=4096)
def unbroadcast_layout(layout: LinearLayout, shape: Coordinates) -> LinearLayout:
    """What the operand of a broadcast looks like when its result has ``layout``.

    ``shape`` has size 1 where the operand is broadcast. Registers stay in place (many hold copies), so a
    conversion of the operand to this layout gives the registers of the result one by one.
    """
    if len(shape) != layout.rank or any(a not in (1, b) for a, b in zip(shape, layout.shape, strict=True)):
        raise LayoutError(f"{shape} cannot be broadcast to {layout.shape}")
    return _map_coordinates(layout, shape, [None if size == 1 else axis for axis, size in enumerate(shape)])


@lru_cache(maxsize=4096)
def broadcast_layout(layout: LinearLayout, shape: Coordinates) -> LinearLayout:
    """Stretch dimensions of size 1 inside each thread, by new register bits above the old ones.

    Register r of the result is register ``r % layout.registers`` of the operand. Where the result should
    rather have a layout of the caller's choice, use ``unbroadcast_layout`` and a conversion.
    """
    if len(shape) != layout.rank or any(a not in (1, b) for a, b in zip(layout.shape, shape, strict=True)):
        raise LayoutError(f"{layout.shape} cannot be broadcast to {shape}")
    wide = _map_coordinates(layout, shape, range(layout.rank))
    new = []
    stride = prod(shape)
    for old_size, size in zip(layout.shape, shape, strict=True):
        stride //= size
        if old_size != size:
            new += [stride << bit for bit in range(log2_exact(size, f"shape {shape}"))]
    register = wide.flat_register + tuple(sorted(new))
    return LinearLayout(shape, register, wide.flat_lane, wide.flat_warp, wide.flat_block)


@lru_cache(maxsize=4096)
def join_layout(layout: LinearLayout) -> LinearLayout:
    """The layout of two joined tiles: a last dimension of size 2 in the lowest register bit.

    Registers 2i and 2i+1 of the result are registers i of the first and of the second tile.
    """
    columns = tuple(flat << 1 for flat in layout.columns)
    wide = layout.with_columns((*layout.shape, 2), columns)
    register = (1, *wide.flat_register)
    return LinearLayout(wide.shape, register, wide.flat_lane, wide.flat_warp, wide.flat_block)


@lru_cache(maxsize=4096)
def split_layout(layout: LinearLayout) -> LinearLayout:
    """The layout of both halves of a tile whose lowest register bit is its last dimension of size 2.

    Registers i of the halves are registers 2i and 2i+1 of the operand. Raises LayoutError for other layouts;
    convert to ``splittable_layout`` first.
    """
    if not layout.shape or layout.shape[-1] != 2:
        raise LayoutError(f"split needs a last dimension of size 2, not shape {layout.shape}")
    if layout.columns[:1] != (1,) or any(flat & 1 for flat in layout.columns[1:]):
        raise LayoutError(f"the lowest register bit of {layout} is not the last dimension")
    groups = (layout.flat_register[1:], layout.flat_lane, layout.flat_warp, layout.flat_block)
    return LinearLayout(layout.shape[:-1], *(tuple(flat >> 1 for flat in g) for g in groups))


@lru_cache(maxsize=4096)
def splittable_layout(layout: LinearLayout) -> LinearLayout:
    """The nearest layout that ``split_layout`` accepts: same places for the rest, both halves in a thread."""
    if not layout.shape or layout.shape[-1] != 2:
        raise LayoutError(f"split needs a last dimension of size 2, not shape {layout.shape}")
    return join_layout(remove_register_broadcast(slice_layout(layout, layout.rank - 1)))


def unique_registers(layout: LinearLayout) -> tuple[int, ...]:
    """The registers that ``remove_register_broadcast`` keeps: new register i is old register result[i]."""
    free = _free_registers(layout)
    return tuple(register for register in range(layout.registers) if not register & free)


@lru_cache(maxsize=4096)
def remove_register_broadcast(layout: LinearLayout) -> LinearLayout:
    """Drop the register bits that hold copies within the thread (see ``unique_registers``)."""
    free = _free_registers(layout)
    register = tuple(b for bit, b in enumerate(layout.flat_register) if not free >> bit & 1)
    return LinearLayout(layout.shape, register, layout.flat_lane, layout.flat_warp, layout.flat_block)


@lru_cache(maxsize=4096)
def share_out(layout: LinearLayout, kept: int) -> LinearLayout:
    """The layout whose threads share out what several of them hold: register bits, but for the lowest ``kept``, become
    lane bits and then warp bits in the place of broadcast ones. Every thread has its elements already.

    A thread that holds an element alone goes on doing so; of neighbours along the last axis neighbouring lanes get one.
    """
    register = remove_register_broadcast(layout).flat_register
    fixed, moved = register[:kept], sorted(register[kept:])
    lane, warp = list(layout.flat_lane), list(layout.flat_warp)
    for bases in (lane, warp):
        for bit, basis in enumerate(bases):
            if not basis and moved:
                bases[bit] = moved.pop(0)
    return LinearLayout(layout.shape, (*fixed, *moved), tuple(lane), tuple(warp), layout.flat_block)


def _free_registers(layout: LinearLayout) -> int:
    space = Echelon()
    return sum(0 if space.add(basis) else 1 << bit for bit, basis in enumerate(layout.flat_register))
