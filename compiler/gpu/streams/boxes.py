"""Facts about one box of an array: which axis is contiguous, how wide copies of it may be, who moves it sooner."""

from __future__ import annotations

from ...hardware import VECTOR_BYTES, threads_of
from ...ir.types import Pointer, Tile
from ...tile.axis import AxisFacts
from ...tile.blocks import BlockLoad, BlockStore
from ...tile.elementwise import Constant

#: Bytes of a box for each thread up to which threads move it themselves: by one access or two each, sooner than the
#: copy engine, which has a descriptor to read, and a program its barriers to set up.
_FEW_BYTES = 32


def contiguous_axis(op: BlockLoad | BlockStore) -> int | None:
    """The axis of the tile along which elements of the array are neighbours."""
    rank = len(op.shape) if isinstance(op, BlockLoad) else op.value.type.rank
    lead = len(op.strides) - rank
    for axis in reversed(range(rank)):
        made = op.strides[lead + axis].op
        if isinstance(made, Constant) and made.value == 1:
            return axis
    return None


def is_small(box: Tile, warps: int) -> bool:
    """Whether the threads of ``warps`` warps move ``box`` sooner than the copy engine does."""
    return box.size * box.elem.bytes <= _FEW_BYTES * threads_of(warps)


def copy_bytes(load: BlockLoad, axis: int, facts: AxisFacts) -> int:
    """The widest copy, 16 bytes at most, to which every row of the box is aligned."""
    pointee = load.base.type.elem
    size = pointee.pointee.bytes if isinstance(pointee, Pointer) else 1
    aligned = facts[load.base].divisibility[0]
    lead = len(load.strides) - len(load.shape)
    for place, (stride, offset) in enumerate(zip(load.strides, load.offsets, strict=True)):
        if place == lead + axis:
            aligned = min(aligned, facts[offset].divisibility[0] * size)
        else:
            aligned = min(aligned, facts[stride].divisibility[0] * size)
    return min(VECTOR_BYTES, max(load.alignment, aligned & -aligned), load.shape[axis] * size)


def is_whole(load: BlockLoad, axis: int, facts: AxisFacts, width: int) -> bool:
    """Whether the array's extent along ``axis`` ends where a copy of ``width`` bytes ends."""
    lead = len(load.strides) - len(load.shape)
    size, offset, element = load.sizes[lead + axis], load.offsets[lead + axis], load.result.type.scalar.bytes
    if facts[offset].divisibility[0] * element % width:
        return False
    return facts[size].divisibility[0] * element % width == 0
