"""From tile IR to GPU IR: the passes, in order and by name."""

from __future__ import annotations

from ..errors import OutOfResources
from ..ir.core import Function
from ..launch_recipe import Guard, LaunchRecipe
from ..options import Schedule
from ..target import Target
from ..tile.axis import analyze
from . import relayout_rules
from .barriers import insert_barriers
from .homes import Costs, Homes
from .overlap import Overlapped, overlap
from .relayout import Relayout
from .roles import GROUP_WARPS
from .scratch import GpuFunction, allocate
from .verify import verify_gpu

#: The modules whose rules say how operations take layouts; importing them registers the rules.
RULES = (relayout_rules,)

#: More slots than any schedule asks for.
MOST_SLOTS = 64


def lower_to_gpu(
    function: Function, target: Target, schedule: Schedule, denied: frozenset[Guard] = frozenset()
) -> GpuFunction:
    """The GPU function of a tile function, for ``schedule.num_warps`` warps; ``function`` is left as it is.

    ``denied``: guards that the launch's arguments break. Streams get ``schedule.num_stages`` slots, or as many as fit.

    Raises:
        OutOfResources: an operation needs more shared memory than ``target`` has.
        UnsupportedOp: an operation has no form on GPUs.
    """
    limit = MOST_SLOTS
    while True:
        streamed = overlap(function, target, schedule, limit, denied)
        try:
            return _place(streamed, target, schedule)
        except OutOfResources:
            if not streamed.slots:
                raise
        limit = streamed.slots - 1


def _place(streamed: Overlapped, target: Target, schedule: Schedule) -> GpuFunction:
    """Layouts for every tile, places in shared memory, barriers."""
    made = assign_layouts(streamed.function, target, schedule)
    allocation = allocate(made, target)
    insert_barriers(made, allocation)
    threads = 32 * (schedule.num_warps + (GROUP_WARPS if streamed.has_roles else 0))
    recipe = LaunchRecipe(threads, streamed.guards, streamed.descriptors, streamed.persistent)
    placed = GpuFunction(made.name, made.parameters, made.body, made.num_warps, allocation, recipe)
    return verify_gpu(placed) if schedule.debug else placed


def assign_layouts(function: Function, target: Target, schedule: Schedule) -> Function:
    """Choose a layout for every tile and emit the conversions between them."""
    warps = schedule.num_warps
    facts = analyze(function)
    costs = Costs(function)
    homes = Homes(function, facts, costs, target, warps)
    return Relayout(function, facts, costs, homes, target, warps).run()
