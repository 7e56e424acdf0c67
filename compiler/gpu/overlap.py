"""Copies that run while products are computed: from loads in loops to rings that somebody fills ahead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..hardware import WARPS_PER_GROUP, threads_of
from ..ir.core import Op, Value, uses
from ..tile.axis import analyze
from ..tile.control import For, While
from ..tile.matmul import Dot
from ..tile.memory import Load, Store
from ..tile.passes import cse, dce, licm, linearize_induction
from ..tile.passes.access import structure_accesses
from ..tile.passes.expand_blocks import expand_blocks
from ..tile.passes.numbers import known_trips
from ..tile.program import rows_of_groups
from .latency.early import bring_rows_early, has_stages, is_recurrence, multiplies
from .latency.rotation import rotate_loops
from .latency.tables import bring_tables_early
from .layouts.tensorcore import choose_warp_group
from .legality import has_room_for, traits_of
from .persistent import deciding_axes, make_persistent
from .residency import (
    ANOTHER_CTA,
    better_by_two,
    computes_operand,
    economised,
    leaving_room,
    lonely_with_producer,
    registers_between_products,
    shared_by_two,
    tiles_that_pay,
    with_slots_in_use,
)
from .streams.descriptors import Descriptors
from .streams.edges import align_edges
from .streams.finder import FEWEST_SLOTS, Finder, products_of
from .streams.multistage import expand_multistage
from .streams.plan import StreamPlan
from .streams.roles import expand_roles
from .streams.write_back import put_results
from .work import GpuWork

#: Products of one loop beyond which a kernel whose programs all take the same time is not persistent by default.
MOST_PRODUCTS = 2
#: Iterations of a loop whose copies are no work for a producer.
MOST_TRIPS_AHEAD = 2
#: Rows of a warp's accumulators (PTX ISA, wgmma.mma_async, "Register Fragments"): a group has 64.
WARP_ROWS = 16


def structure(work: GpuWork) -> None:
    """Accesses that bring operands of products, or may take their results, become accesses of boxes. Without products
    nothing is done here and in finding streams."""
    if not work.function.ops_of(Dot):
        return
    used = uses(work.function)
    work.guards = structure_accesses(work.function, lambda op: _concerns_products(op, used), work.denied)
    for step in (licm, linearize_induction, licm, cse, dce):
        step(work.function)


def persist(work: GpuWork) -> None:
    """A loop over the programs of the grid, where the schedule asks for it or, if it says nothing, where that pays."""
    asked = work.schedule.persistent
    work.persistent = asked if asked is not None else not work.schedule.launch_cooperative_grid and _pays(work)
    if work.persistent:
        work.single = work.function.clone() if asked is None else None
        make_persistent(work.function)


def find_streams(work: GpuWork) -> None:
    """Decide which loops are fed from rings. Without any, the function is again what it was without boxes."""
    work.plan = _find(work)
    if work.single is not None:
        streams = work.plan.streams if work.plan else ()
        # What pays is a group of warps that copies for the next tile already, and it uses the copy engine alone.
        copied = all(group.engine == "tma" for stream in streams for group in stream.groups)
        enough = tiles_that_pay(work.function, streams, work.target, work.schedule)
        few = enough in work.denied
        if not copied or few or better_by_two(work.function, streams, work.target, work.schedule):
            work.function, work.persistent = work.single, False
            work.plan = _find(work)
        elif enough is not None:
            work.require([enough])
    if work.plan is None:
        work.begin_again()
        work.guards, work.persistent = (), bool(work.schedule.persistent)
        if work.persistent:
            make_persistent(work.function)
        _bring_rows_early(work, lambda loop: is_recurrence(loop) or has_stages(loop))


def _find(work: GpuWork) -> StreamPlan | None:
    """The streams of the function, whose rows come early from now on."""
    if not work.function.ops_of(Dot):
        return None
    _bring_rows_early(work, multiplies)
    facts = analyze(work.function, rows_of_groups(work.function))
    descriptors = Descriptors(work.function, facts, work.denied)
    asked, most = work.schedule.num_stages, work.limits.slots
    finder = Finder(work.function, facts, work.target, descriptors, asked, most, lambda dot: _of_warp_group(work, dot))
    streams = tuple(finder.run())
    registers = registers_between_products(work.function, work.schedule)
    return StreamPlan(streams, descriptors, registers) if streams else None


def _bring_rows_early(work: GpuWork, pays: Callable[[For], bool]) -> None:
    """Where that ``pays``, and the author lets loops read ahead: of kernels without products their own hints say so."""
    asked = work.schedule.num_stages if work.function.ops_of(Dot) else FEWEST_SLOTS
    bring_rows_early(
        work.function,
        threads_of(work.schedule.num_warps),
        lambda loop: (loop.num_stages or asked) >= FEWEST_SLOTS and pays(loop),
    )


def write_back(work: GpuWork) -> None:
    """Results leave through the copy engine, where there is one."""
    if work.plan is not None and "tma" in work.target.features:
        put_results(work.function, work.plan.descriptors, work.persistent)


def fill_rings(work: GpuWork) -> None:
    """Give every stream to a producer group, or else let the threads that compute run ahead of themselves."""
    if work.plan is None:
        return
    plan = work.plan = replace(work.plan, streams=bring_tables_early(work.function, work.plan.streams))
    work.producer_warps = _fill_by_producer(work, plan)
    if not work.producer_warps:
        _fill_ahead(work, plan)
    work.require(plan.descriptors.guards)


def _fill_by_producer(work: GpuWork, plan: StreamPlan) -> int:
    """The number of warps that it took; 0 where there can be none, or another CTA is worth more."""
    if not _specialises(work) or lonely_with_producer(plan.registers, work.schedule) or _ends_soon(work, plan):
        return 0
    moves_registers = "setmaxnreg" in work.target.features and work.schedule.maxnreg is None
    fed = _leave_room(work, plan)
    resident = _resident_ctas(work, fed)
    streams = with_slots_in_use(fed.streams, work.function, work.target, work.schedule, resident)
    most = work.limits.slots
    made = replace(plan, streams=tuple(replace(s, slots=min(s.slots, most)) for s in streams))
    warps = expand_roles(work.function, made.streams, moves_registers, resident)
    if warps:
        work.plan = made
        if fed is not plan:
            work.require([ANOTHER_CTA])
    return warps


def _ends_soon(work: GpuWork, plan: StreamPlan) -> bool:
    """Whether the threads that compute begin all copies of the program before the first product: there is nothing left
    for others, whose registers another CTA may have. What is in a loop, as in that over a program's tiles, begins
    again."""
    around = [op for op in work.function.walk() if isinstance(op, For | While)]
    again = {op for loop in around for block in loop.blocks for op in block.walk()}
    trips = [None if stream.loop in again else known_trips(stream.loop) for stream in plan.streams]
    return all(count is not None and count <= MOST_TRIPS_AHEAD for count in trips)


def _leave_room(work: GpuWork, plan: StreamPlan) -> StreamPlan:
    """The plan with fewer slots, if that makes room for another CTA and launches have programs for it."""
    if work.persistent or ANOTHER_CTA in work.denied:
        return plan
    leaner = leaving_room(work.function, plan.streams, work.target, work.schedule)
    return plan if leaner is None else replace(plan, streams=tuple(leaner))


def _fill_ahead(work: GpuWork, plan: StreamPlan) -> None:
    """Copies for later iterations by the threads that compute."""
    fly = any(_of_warp_group(work, dot) for dot in work.function.ops_of(Dot))
    streams = [
        economised(stream, work.target, work.schedule, refilled=not fly)
        if ANOTHER_CTA not in work.denied and (not fly or computes_operand(stream))
        else stream
        for stream in plan.streams
    ]
    if any(made is not stream for made, stream in zip(streams, plan.streams, strict=True)):
        work.require([ANOTHER_CTA])
    expand_multistage(work.function, streams, lambda dot: _of_warp_group(work, dot))


def rotate(work: GpuWork) -> None:
    """Products that others wait for are left for the next iteration, where warp groups do the products."""
    if work.producer_warps:
        rotate_loops(work.function, work.schedule)


def expand(work: GpuWork) -> None:
    """Boxes that no ring took become plain accesses again."""
    work.require(align_edges(work.function, work.denied))
    expand_blocks(work.function)
    dce(work.function)


def _concerns_products(op: Load | Store, used: dict[Value, list[Op]]) -> bool:
    if isinstance(op, Store):
        return op.value.type.rank == 2
    return len(op.result.type.shape) == 2 and bool(products_of(op.result, used))


def _specialises(work: GpuWork) -> bool:
    """Whether products are those of warp groups, which leave the threads idle enough for another group's work, and a
    CTA has room for that group."""
    warps = work.schedule.num_warps
    groups = [_of_warp_group(work, dot) for dot in work.function.ops_of(Dot)]
    return warps % WARPS_PER_GROUP == 0 and all(groups) and has_room_for(work.schedule, warps + WARPS_PER_GROUP)


def _resident_ctas(work: GpuWork, plan: StreamPlan) -> int:
    two = not work.persistent and shared_by_two(work.function, plan.streams, work.target, work.schedule)
    return 2 if two else 1


def _of_warp_group(work: GpuWork, dot: Dot) -> bool:
    return choose_warp_group(dot, work.target, work.schedule) is not None


def _pays(work: GpuWork) -> bool:
    """Whether one program per SM is better: for one product of several warp groups, which fills the SM by
    itself, for two, as in attention, where all programs take the same time and each warp group has rows of its own, and
    for any number where pairs of programs do, which are dealt out better than programs that differ. Gradients of
    attention that is not causal, with more products in a loop, gain nothing (benchmarks/results/2026-11-25-h100-tiles
    and 2026-11-25-h100, attention-forward.json and attention-backward.json), nor do two groups that share 64 rows
    (2026-11-26-h100-last, walks.txt)."""
    several, dots = work.schedule.num_warps >= 2 * WARPS_PER_GROUP, work.function.ops_of(Dot)
    if not several or not dots or not _specialises(work) or traits_of(work.function).waits:
        return False
    if len(dots) == 1:
        return True
    deciding = deciding_axes(work.function)
    loops = [loop.body for loop in work.function.ops_of(For)]
    most = max((len(body.ops_of(Dot)) for body in loops), default=0)
    rows = min(dot.acc.type.shape[-2] for dot in dots)
    alike = most == MOST_PRODUCTS and rows >= WARP_ROWS * work.schedule.num_warps
    return deciding == frozenset({0}) or (deciding == frozenset() and alike)
