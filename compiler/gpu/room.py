"""Register pressure: warps enough to hold the results of products in registers.

A result that a thread cannot hold, or results that a loop carries side by side, are in local memory, and pass through
registers at every step of the loop. So do those of a batch, which are stored behind the last product; assemblers take
many seconds for them (18 s for four of 64 by 64 by one warp, 1 s by four). Twice the threads hold half of them each:
what a program computes does not depend on how many there are.
"""

from __future__ import annotations

from dataclasses import replace

from ..hardware import MOST_REGISTERS, REGISTER_BITS, threads_of
from ..ir.core import Function, Value
from ..ir.types import Scalar, Tile
from ..options import Schedule
from ..tile.blocks import BlockStore
from ..tile.control import For
from ..tile.matmul import Dot
from ..tile.memory import Store
from ..tile.shape import Join, Permute, Reshape
from .estimates import FEW_WARPS, MOST_WARPS


def with_room(schedule: Schedule, function: Function) -> Schedule:
    """``schedule`` with as many warps as the largest result of a product needs, what loops around products carry, and
    what is stored of a batch; as it is where ``maxnreg`` says how many registers a thread shall have, or where the
    program was told how many warps it has."""
    if schedule.maxnreg is not None or function.num_warps is not None:
        return schedule
    products = (_bits(dot.acc) for dot in function.ops_of(Dot))
    loops = (loop for loop in function.ops_of(For) if loop.body.ops_of(Dot))
    bits = max(*products, *(sum(map(_bits, loop.inits)) for loop in loops), 0, 0)
    # Only as it is: what is made of a batch may be made of one product after the other, in few registers.
    stored = [op.value for op in function.walk() if isinstance(op, Store | BlockStore)]
    batch = max((_bits(value) for value in stored if _is_batch(value)), default=0)
    warps = schedule.num_warps
    while warps < MOST_WARPS:
        held = REGISTER_BITS * MOST_REGISTERS * threads_of(warps)
        if max(bits, batch if warps <= FEW_WARPS else batch // 2) <= held:
            break
        warps *= 2
    return replace(schedule, num_warps=warps)


def _is_batch(value: Value) -> bool:
    """Whether products were joined to it, as those of a batch are."""
    value = _moved(value)
    if not isinstance(value.op, Join):
        return False
    while isinstance(value.op, Join):
        value = _moved(value.op.lhs)
    return isinstance(value.op, Dot)


def _moved(value: Value) -> Value:
    """The tile whose elements, in other places, are those of ``value``."""
    while isinstance(value.op, Reshape | Permute):
        value = value.op.x
    return value


def _bits(value: Value) -> int:
    """Of a tile of numbers; other values take next to nothing, or are not kept as they are."""
    tile = value.type
    if not isinstance(tile, Tile) or tile.rank < 2 or not isinstance(tile.elem, Scalar):
        return 0
    return tile.size * tile.scalar.bits
