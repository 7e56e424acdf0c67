"""Copies that run while products are computed: from loads in loops to rings that somebody fills ahead."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.core import Function, Op, Value, uses
from ..launch_recipe import Guard, TensorMap
from ..layout.fragments import WARPS_PER_GROUP
from ..options import Schedule
from ..target import Target
from ..tile.axis import analyze
from ..tile.matmul import Dot
from ..tile.memory import Load, Store
from ..tile.passes import cse, dce, licm
from ..tile.passes.access import structure_accesses
from ..tile.passes.expand_blocks import expand_blocks
from .descriptors import Descriptors
from .multistage import expand_multistage
from .persistent import make_persistent, may_persist
from .roles import GROUP_WARPS, expand_roles
from .streams import Finder, products_of
from .tensorcore import choose_warp_group
from .write_back import put_results

#: Warps of a block (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": 1024 threads).
MOST_WARPS = 32


@dataclass(frozen=True, slots=True)
class Overlapped:
    """A tile function with rings, of ``slots`` slots at most, and what a launch has to know of it."""

    function: Function
    slots: int
    guards: tuple[Guard, ...] = ()
    descriptors: tuple[TensorMap, ...] = ()
    has_roles: bool = False
    persistent: bool = False


def overlap(function: Function, target: Target, schedule: Schedule, limit: int, denied: frozenset[Guard]) -> Overlapped:
    """A copy of ``function`` whose products are fed from rings of ``limit`` slots at most, as far as ``target`` can."""
    plain = function.clone()
    plain.num_warps = schedule.num_warps
    persistent = bool(schedule.persistent) and may_persist(plain)
    made = plain.clone()
    used = uses(made)
    guards = structure_accesses(made, lambda op: _concerns_products(op, used), denied)
    for step in (licm, cse, dce):
        made = step(made)
    if persistent:
        make_persistent(made)
    facts = analyze(made)
    descriptors = Descriptors(made, facts, denied)
    streams = Finder(made, facts, target, descriptors, schedule.num_stages, limit).run()
    if not streams:
        return Overlapped(expand_blocks(make_persistent(plain) if persistent else plain), 0, persistent=persistent)
    if "tma" in target.features:
        put_results(made, descriptors, persistent)
    has_roles = False
    if _specialises(made, target, schedule):
        has_roles = expand_roles(made, streams, "setmaxnreg" in target.features and schedule.maxnreg is None)
    if not has_roles:
        expand_multistage(made, streams)
    guards = tuple(dict.fromkeys((*guards, *descriptors.guards)))
    slots = max(stream.slots for stream in streams)
    return Overlapped(dce(expand_blocks(made)), slots, guards, tuple(descriptors.maps), has_roles, persistent)


def _concerns_products(op: Load | Store, used: dict[Value, list[Op]]) -> bool:
    if isinstance(op, Store):
        return op.value.type.rank == 2
    return len(op.result.type.shape) == 2 and bool(products_of(op.result, used))


def _specialises(function: Function, target: Target, schedule: Schedule) -> bool:
    """Whether products are those of warp groups, which leave the threads idle enough for another group's work, and
    there is room for that group in the block."""
    if schedule.num_warps + GROUP_WARPS > MOST_WARPS:
        return False
    dots = [op for op in function.walk() if isinstance(op, Dot)]
    groups = [choose_warp_group(dot, target, schedule.num_warps) for dot in dots]
    return schedule.num_warps % WARPS_PER_GROUP == 0 and all(groups)
