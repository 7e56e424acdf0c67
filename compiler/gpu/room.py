"""Warps enough to hold the results of products in registers.

A result that a thread cannot hold is in local memory, and passes through registers at every step of its loop. Twice the
threads hold half of it each: what a program computes does not depend on how many there are.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.core import Function
from ..ir.types import Tile
from ..options import Schedule
from ..tile.matmul import Dot

#: Registers of 32 bits that a thread can have (CUDA C++ Programming Guide, "Technical Specifications per Compute
#: Capability").
MOST_REGISTERS = 255
#: With more warps than these a thread has fewer than 128 registers, and a block holds no more than before.
MOST_WARPS = 16


def with_room(schedule: Schedule, function: Function) -> Schedule:
    """``schedule`` with as many warps as the largest result of a product needs; as it is where ``maxnreg`` says how
    many registers a thread shall have."""
    tiles = (op.acc.type for op in function.walk() if isinstance(op, Dot))
    bits = max((tile.size * tile.scalar.bits for tile in tiles if isinstance(tile, Tile)), default=0)
    warps = schedule.num_warps
    while bits > 32 * MOST_REGISTERS * 32 * warps and warps < MOST_WARPS and schedule.maxnreg is None:
        warps *= 2
    return replace(schedule, num_warps=warps)
