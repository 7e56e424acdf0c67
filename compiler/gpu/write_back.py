"""Results of products through the copy engine: stores that run while the next tile is computed."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.core import Block, Function
from ..ir.types import Scalar
from ..layout import shared_tensor_core, widest_swizzle
from ..tile.axis import AxisFacts
from ..tile.blocks import BlockStore
from ..tile.control import For, While
from .arrays import Arrays
from .asynchronous import Drain, Put
from .descriptors import Descriptors
from .streams import contiguous_axis

#: Bytes of shared memory for one part of a box.
PART_BYTES = 32 * 1024


def put_results(function: Function, facts: AxisFacts, descriptors: Descriptors, parts: int | None) -> None:
    """Let the copy engine write the boxes that it can, in place. ``parts``: None for as many as the memory suggests.

    What a program stores it may load again, and a copy under way would come too late: so only arrays that are never
    read are written this way.
    """
    arrays = Arrays(function)
    read = arrays.read(function)
    made = False
    for block, in_loop in _blocks(function.body, False):
        for place, op in enumerate(block.ops):
            if isinstance(op, BlockStore) and None not in read and arrays.accessed(op) not in read:
                put = _put(op, facts, descriptors, parts, in_loop)
                if put is not None:
                    block.ops[place] = put
                    made = True
    if made:
        function.body.ops.append(Drain())


def _blocks(block: Block, in_loop: bool) -> Iterator[tuple[Block, bool]]:
    yield block, in_loop
    for op in block.ops:
        for nested in op.blocks:
            yield from _blocks(nested, in_loop or isinstance(op, For | While))


def _put(op: BlockStore, facts: AxisFacts, descriptors: Descriptors, parts: int | None, in_loop: bool) -> Put | None:
    axis, elem = contiguous_axis(op), op.value.type.elem
    shape = op.value.type.shape
    if axis is None or len(shape) != 2 or not isinstance(elem, Scalar) or elem.bits not in (16, 32):
        return None
    swizzle = widest_swizzle(shape[axis] * elem.bytes)
    if not swizzle or op.cache or op.eviction:
        return None
    number = descriptors.add(op, axis, swizzle, facts)
    if number < 0:
        return None
    place = op.value.type.in_shared_memory(shared_tensor_core(shape, elem.bits, swizzle, (axis, 1 - axis)))
    panels = shape[axis] * elem.bytes // swizzle
    wanted = parts or max(1, op.value.type.size * elem.bytes // PART_BYTES)
    put = Put(
        op.base, op.sizes, op.strides, op.offsets, op.value, place, number, min(wanted, panels), reuses=not in_loop
    )
    put.location = op.location
    return put
