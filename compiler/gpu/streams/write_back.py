"""Epilogues through the copy engine: stores of products that run while the next tile is computed."""

from __future__ import annotations

from collections.abc import Iterator

from ...hardware import WARPS_PER_GROUP
from ...ir.core import Block, Function, Op
from ...ir.types import Scalar
from ...layout import shared_tensor_core, widest_swizzle
from ...tile.assembly import EffectfulAssembly
from ...tile.blocks import BlockStore
from ...tile.control import For, While
from ...tile.memory import AtomicCAS, AtomicRMW
from ..arrays import WRITES, Arrays
from ..asynchronous import Drain, Put
from ..layouts.tensorcore import WGMMA_ROWS
from .boxes import contiguous_axis, is_small
from .descriptors import Descriptors

#: Bytes of shared memory for one part of a box.
PART_BYTES = 32 * 1024


def put_results(function: Function, descriptors: Descriptors, persistent: bool) -> None:
    """Let the copy engine write the boxes that it can, in place; ``persistent``: the outermost loop is the compiler's.

    What a program stores it may load again, or store again, and a copy under way would come too late: so only arrays
    that are never read, and written by one operation, are written this way. Nor would it be there yet when the program
    tells other programs or kernels that it is: none is written this way by a kernel that releases.
    """
    if any(_releases(op) for op in function.walk()):
        return
    arrays = Arrays(function)
    read = arrays.read(function)
    written = [arrays.accessed(op) for op in function.walk() if isinstance(op, WRITES)]
    made = False
    for block, loops in _blocks(function.body, 0):
        for place, op in enumerate(block.ops):
            if not isinstance(op, BlockStore) or None in read or None in written:
                continue
            array = arrays.accessed(op)
            if array in read or written.count(array) > 1:
                continue
            put = _put(op, descriptors, function.warps, loops > persistent)
            if put is not None:
                block.ops[place] = put
                made = True
    if made:
        function.body.ops.append(Drain())


def _releases(op: Op) -> bool:
    """Whether what the program wrote before is to be seen by whoever sees what ``op`` writes, or may be."""
    if isinstance(op, AtomicRMW | AtomicCAS):
        return op.semantics not in ("relaxed", "acquire")
    return isinstance(op, EffectfulAssembly)


def _blocks(block: Block, loops: int) -> Iterator[tuple[Block, int]]:
    """All blocks, with the number of loops around each."""
    yield block, loops
    for op in block.ops:
        for nested in op.blocks:
            yield from _blocks(nested, loops + isinstance(op, For | While))


def copy_rows(shape: tuple[int, ...], axis: int, warps: int) -> int:
    """Rows of one copy: those of a warp group where groups share out the rows of a row-major tile, else all."""
    groups = warps // WARPS_PER_GROUP
    alone = axis == 1 and groups > 1 and warps % WARPS_PER_GROUP == 0 and shape[0] >= WGMMA_ROWS * groups
    return WGMMA_ROWS if alone else shape[0]


def _put(op: BlockStore, descriptors: Descriptors, warps: int, ordered: bool) -> Put | None:
    axis, elem = contiguous_axis(op), op.value.type.elem
    shape = op.value.type.shape
    if axis is None or len(shape) != 2 or not isinstance(elem, Scalar) or elem.bits not in (16, 32):
        return None
    if is_small(op.value.type, warps):
        return None
    swizzle = widest_swizzle(shape[axis] * elem.bytes)
    if not swizzle or op.cache or op.eviction:
        return None
    rows = copy_rows(shape, axis, warps)
    number = descriptors.add(op, axis, swizzle, rows)
    if number < 0:
        return None
    place = op.value.type.in_shared_memory(shared_tensor_core(shape, elem.bits, swizzle, (axis, 1 - axis)))
    panels = shape[axis] * elem.bytes // swizzle
    wanted = max(1, op.value.type.size * elem.bytes // PART_BYTES)
    put = Put(
        op.base,
        op.sizes,
        op.strides,
        op.offsets,
        op.value,
        place,
        number,
        min(wanted, panels),
        rows,
        ordered,
    )
    put.location = op.location
    return put
