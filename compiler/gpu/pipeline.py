"""From tile IR to GPU IR: the steps, in order and by name.

A step takes a :class:`GpuWork`. What it calls takes the function, changes it in place and returns nothing, or what it
has found out, such as the warps that it added; never the function. That is another one afterwards only where
``streams`` takes back an earlier one, ``layouts`` emits it anew and ``allocate`` adds places. From the first step on it
has its number of warps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import OutOfResources
from ..hardware import MOST_THREADS, threads_of
from ..ir.core import Function
from ..ir.verify import verify
from ..launch_recipe import Guard
from ..options import Schedule
from ..target import Target
from ..tile.axis import analyze
from ..tile.program import rows_of_groups
from .agreement import agree_on_control
from .atomics import find_updates
from .attempts import AttemptLimits, Fits, TooLarge, next_limits
from .latency.flight import let_fly
from .latency.loads import begin_loads, keep_loads_first
from .latency.operand_writes import write_operands_early
from .latency.ready import begin_products
from .latency.stores import delay_stores
from .latency.turns import take_turns
from .latency.unroll import unroll_short_loops
from .layouts import relayout_rules
from .layouts.costs import Costs
from .layouts.homes import Homes
from .layouts.relayout import Relayout
from .legality import require_legal
from .memory.barriers import insert_barriers
from .memory.fences import place_fences
from .memory.scratch import GpuFunction, allocate
from .overlap import expand, fill_rings, find_streams, persist, rotate, structure, write_back
from .residency import slots_for_another_cta
from .room import with_room
from .verify import verify_gpu, verify_rings
from .work import GpuWork

#: The modules whose rules say how operations take layouts; importing them registers the rules.
RULES = (relayout_rules,)

#: Called with the name of each step and what it left. Steps that are repeated with shorter rings are seen again.
Observer = Callable[[str, GpuWork], None]


def ask_together(work: GpuWork) -> None:
    """Products begin when their operands are there, loads beside them come where their block begins, stores in loops
    behind the products that follow them."""
    begin_products(work.function, work.schedule)
    begin_loads(work.function, threads_of(work.schedule.num_warps))
    delay_stores(work.function, threads_of(work.schedule.num_warps))


def lay_out(work: GpuWork) -> None:
    """Choose a layout for every tile and emit the conversions between them."""
    function, schedule = work.function, work.schedule
    find_updates(function, work.target)
    facts, costs = analyze(function, rows_of_groups(function)), Costs(function)
    homes = Homes(function, facts, costs, work.target, schedule)
    work.function = Relayout(function, facts, costs, homes, work.target, schedule).run()


def unroll(work: GpuWork) -> None:
    """Short loops without their turns."""
    unroll_short_loops(work.function)


def agree(work: GpuWork) -> None:
    """One value for all threads where what they read decides where they go."""
    agree_on_control(work.function)


def await_products(work: GpuWork) -> None:
    """Wait for products where their results are needed, and bring operands in time."""
    write_operands_early(work.function, threads_of(work.schedule.num_warps))
    work.spared_waits = let_fly(work.function, spare_waits=work.limits.spare_waits)


def place(work: GpuWork) -> None:
    """Give everything in shared memory its place, and say what a launch has to do."""
    made = work.function
    allocation = allocate(made, work.target)
    work.function = GpuFunction(made.name, made.parameters, made.body, made.num_warps, allocation, work.recipe)


def order(work: GpuWork) -> None:
    """Barriers and fences where threads or copies would otherwise run into memory that others still read, and where
    an assembler would take loads and stores in turns."""
    insert_barriers(work.placed, work.placed.allocation)
    place_fences(work.placed)
    keep_loads_first(work.placed)


def in_turns(work: GpuWork) -> None:
    """Let two groups have the tensor cores one after the other."""
    take_turns(work.placed)


class Step(NamedTuple):
    """One step. ``name``: as ``deuteron compile --after`` has it. ``needs``, ``leaves``: which facts of a
    :class:`GpuWork` it reads and sets. All may read what was asked for, and change the function."""

    name: str
    run: Callable[[GpuWork], None]
    needs: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()


#: What :func:`lower_to_gpu` runs, in order.
PIPELINE = (
    Step("structure", structure, leaves=("guards",)),
    Step("persistent", persist, leaves=("persistent", "single")),
    Step("streams", find_streams, needs=("guards", "single"), leaves=("plan", "guards", "persistent")),
    Step("write_back", write_back, needs=("plan", "persistent")),
    Step("rings", fill_rings, needs=("plan", "persistent", "guards"), leaves=("plan", "producer_warps", "guards")),
    Step("rotate", rotate, needs=("producer_warps",)),
    Step("expand", expand, needs=("guards",), leaves=("guards",)),
    Step("loads", ask_together),
    Step("layouts", lay_out),
    Step("unroll", unroll),
    Step("agree", agree),
    Step("flight", await_products, leaves=("spared_waits",)),
    Step("allocate", place, needs=("guards", "persistent", "plan", "producer_warps")),
    Step("barriers", order),
    Step("turns", in_turns),
)
STEPS = tuple(step.name for step in PIPELINE)
#: The steps after which tiles have layouts.
_LAID_OUT = STEPS[STEPS.index("layouts") :]
#: Those before, after which what rings hold has one.
_WITH_RINGS = STEPS[STEPS.index("rings") : STEPS.index("layouts")]


def check_of(step: str) -> Callable[[Function], Function]:
    """What checks the function that a step has left, and raises IRError."""
    if step in _LAID_OUT:
        return verify_gpu
    return verify_rings if step in _WITH_RINGS else verify


def lower_to_gpu(
    function: Function,
    target: Target,
    schedule: Schedule,
    denied: frozenset[Guard] = frozenset(),
    observe: Observer = lambda name, work: None,
) -> GpuFunction:
    """The GPU function of a tile function, for ``schedule.num_warps`` warps, or more where a product's result would not
    fit into their registers; ``function`` is left as it is.

    ``denied``: guards that the launch's arguments break. Rings get ``schedule.num_stages`` slots, or as many as fit;
    fewer where an SM can hold another CTA then, and threads have work that its products hide.

    Raises:
        IllegalSchedule: the function cannot have this schedule.
        OutOfResources: an operation needs more shared memory than ``target`` has, or the CTA too many threads.
        UnsupportedOp: an operation has no form on GPUs.
    """
    threads = threads_of(schedule.num_warps)
    if threads > MOST_THREADS:
        raise OutOfResources("threads", threads, MOST_THREADS, hint="use 32 warps or fewer")
    require_legal(schedule, function, target.kind)
    schedule = with_room(schedule, function, target)
    limits = AttemptLimits()
    while True:
        work = GpuWork(function, target, schedule, denied, limits)
        try:
            for step in PIPELINE:
                step.run(work)
                observe(step.name, work)
        except OutOfResources:
            following = next_limits(limits, TooLarge(work.plan.slots if work.plan else 0, work.spared_waits))
            if following is None:
                raise
        else:
            following = next_limits(limits, Fits(_slots_for_another_cta(work)))
            if following is None:
                return work.placed
        limits = following


def _slots_for_another_cta(work: GpuWork) -> int | None:
    """What :class:`Fits` has of it; None where a producer fills the rings, which keep their slots."""
    if work.plan is None or work.producer_warps:
        return None
    return slots_for_another_cta(work.plan, work.placed.allocation.total, work.schedule, work.target)
