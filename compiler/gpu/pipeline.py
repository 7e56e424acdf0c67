"""From tile IR to GPU IR: the passes, in order and by name."""

from __future__ import annotations

from ..ir.core import Function
from ..options import Schedule
from ..target import Target
from ..tile.axis import analyze
from ..tile.passes import expand_blocks
from . import relayout_rules
from .barriers import insert_barriers
from .homes import Costs, Homes
from .relayout import Relayout
from .scratch import GpuFunction, allocate
from .verify import verify_gpu

#: The modules whose rules say how operations take layouts; importing them registers the rules.
RULES = (relayout_rules,)


def lower_to_gpu(function: Function, target: Target, schedule: Schedule) -> GpuFunction:
    """The GPU function of a tile function, for ``schedule.num_warps`` warps; ``function`` is left as it is,
    but for block operations, which become pointers.

    Raises:
        OutOfResources: an operation needs more shared memory than ``target`` has.
        UnsupportedOp: an operation has no form on GPUs.
    """
    made = assign_layouts(expand_blocks(function), target, schedule)
    allocation = allocate(made, target)
    insert_barriers(made, allocation)
    placed = GpuFunction(made.name, made.parameters, made.body, made.num_warps, allocation)
    return verify_gpu(placed) if schedule.debug else placed


def assign_layouts(function: Function, target: Target, schedule: Schedule) -> Function:
    """Choose a layout for every tile and emit the conversions between them."""
    warps = schedule.num_warps
    facts = analyze(function)
    costs = Costs(function)
    homes = Homes(function, facts, costs, target, warps)
    return Relayout(function, facts, costs, homes, target, warps).run()
