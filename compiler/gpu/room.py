"""Warps enough to hold the results of products in registers.

A result that a thread cannot hold, or results that a loop carries side by side, are in local memory, and pass through
registers at every step of the loop. Twice the threads hold half of them each: what a program computes does not depend
on how many there are.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.core import Function, Value
from ..ir.types import Scalar, Tile
from ..options import Schedule
from ..target import MOST_REGISTERS
from ..tile.control import For
from ..tile.matmul import Dot

#: With more warps than these a thread has fewer than 128 registers, and a CTA holds no more than before.
MOST_WARPS = 16


def with_room(schedule: Schedule, function: Function) -> Schedule:
    """``schedule`` with as many warps as the largest result of a product needs, and what loops around products carry;
    as it is where ``maxnreg`` says how many registers a thread shall have."""
    products = (_bits(op.acc) for op in function.walk() if isinstance(op, Dot))
    loops = (op for op in function.walk() if isinstance(op, For) and any(isinstance(o, Dot) for o in op.body.walk()))
    bits = max(*products, *(sum(map(_bits, loop.inits)) for loop in loops), 0, 0)
    warps = schedule.num_warps
    while bits > 32 * MOST_REGISTERS * 32 * warps and warps < MOST_WARPS and schedule.maxnreg is None:
        warps *= 2
    return replace(schedule, num_warps=warps)


def _bits(value: Value) -> int:
    """Of a tile of numbers; other values take next to nothing, or are not kept as they are."""
    tile = value.type
    if not isinstance(tile, Tile) or tile.rank < 2 or not isinstance(tile.elem, Scalar):
        return 0
    return tile.size * tile.scalar.bits
