"""Register pressure: warps enough to hold the results of products, and to make operands while others multiply.

A result that a thread cannot hold, or results that a loop carries side by side, are in local memory, and pass through
registers at every step of the loop. So do those of a batch, which are stored behind the last product; assemblers take
many seconds for them (18 s for four of 64 by 64 by one warp, 1 s by four). Twice the threads hold half of them each:
what a program computes does not depend on how many there are.

On Hopper, a left operand that threads make of what a loop loads is in their registers. One group of warps that makes
128 rows of it multiplies nothing meanwhile, nor does the other CTA that an SM holds, which soon does the same at the
same time; two groups with 64 rows each take turns. With 128 columns that is 0.76 to 0.90 of the time, with 64 or 32 it
is 0.97 to 1.11 (an H200, casts, activations and scaled rows: benchmarks/results/2026-11-30-h200-made, groups.txt).
"""

from __future__ import annotations

from dataclasses import replace

from ..hardware import MOST_REGISTERS, REGISTER_BITS, WARPS_PER_GROUP, threads_of
from ..ir.core import Function, Value
from ..ir.slices import backward_slice
from ..ir.types import Scalar, Tile
from ..options import Schedule
from ..target import Target
from ..tile.blocks import BlockLoad, BlockStore
from ..tile.control import For
from ..tile.matmul import Dot
from ..tile.memory import Load, Store
from ..tile.shape import Join, Permute, Reshape
from .estimates import ACCUMULATORS_OF_TWO, FEW_WARPS, MOST_WARPS
from .layouts.tensorcore import WGMMA_ROWS, choose_warp_group
from .layouts.views import unpermuted


def with_room(schedule: Schedule, function: Function, target: Target) -> Schedule:
    """``schedule`` with as many warps as the largest result of a product needs, what loops around products carry, what
    is stored of a batch, and what makes left operands; as it is where ``maxnreg`` says how many registers a thread
    shall have, or where the program was told how many warps it has."""
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
    schedule = replace(schedule, num_warps=warps)
    if warps == WARPS_PER_GROUP and _makes_left_operands(function, target, schedule):
        return replace(schedule, num_warps=2 * warps)
    return schedule


def _makes_left_operands(function: Function, target: Target, schedule: Schedule) -> bool:
    """Whether a loop has one product, one of a warp group, of more rows than an instruction has and as many results as
    a group has registers to spare, and makes its left operand of what it loads."""
    for loop in function.ops_of(For):
        dots = loop.body.ops_of(Dot)
        if len(dots) != 1 or dots[0] not in loop.body.ops or not _is_large(dots[0].acc.type):
            continue
        if choose_warp_group(dots[0], target, schedule) is None:
            continue
        made_by = unpermuted(dots[0].a).op
        made = backward_slice([dots[0].a], loop.body.ops)
        if made_by in made and not isinstance(made_by, Load | BlockLoad):
            return any(isinstance(op, Load | BlockLoad) and op.result.type.rank == 2 for op in made)
    return False


def _is_large(result: Tile) -> bool:
    return result.shape[0] > WGMMA_ROWS and result.size >= ACCUMULATORS_OF_TWO * threads_of(WARPS_PER_GROUP)


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
