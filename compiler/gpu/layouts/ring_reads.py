"""Dot operand layouts: what threads make of a tile in a ring is read as its product takes it, if that is no slower.

Read in vectors, what was made of it goes through shared memory once more, with a barrier, before wgmma has its rows
along K or its fragments. Threads may read the ring in that order at once: in more accesses, perhaps with conflicts, but
without the way back. Which is faster is counted in cycles of shared memory and instructions.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir.core import Value
from ...layout import (
    LinearLayout,
    SharedLayout,
    SharedMemory,
    WarpShuffle,
    contiguous_registers,
    plan_conversion,
    transposing,
)
from ...layout.convert import BARRIER_COST
from ...options import Schedule
from ...target import Target
from ...tile.matmul import Dot
from ...tile.shape import Permute
from ..asynchronous import Slot
from .operands import plan_local_load, plan_operand
from .reduction import bits_of
from .tensorcore import choose_warp_group
from .views import operand_layout


class RingRead(NamedTuple):
    """A tile of elements of ``bits`` that threads read where it lies, within so many loops."""

    place: SharedLayout
    bits: int
    loops: int


class Taken(NamedTuple):
    """The layout in which a product within so many loops takes an operand of ``bits`` from registers. ``k_axis``: it
    does so only where neighbours lie along the other axis."""

    layout: LinearLayout
    bits: int
    loops: int
    k_axis: int | None = None


def ring_read(value: Value, loops: int) -> RingRead | None:
    """The slot that ``value`` is, perhaps seen transposed, read within so many loops; None if it is none."""
    orders: list[tuple[int, ...]] = []
    made = value.op
    while isinstance(made, Permute):
        orders.append(made.order)
        made = made.x.op
    place = made.result.type.shared if isinstance(made, Slot) else None
    if place is None:
        return None
    for order in reversed(orders):
        place = place.permute(order)
    return RingRead(place, bits_of(value.type), loops)


def taken_by(dot: Dot, loops: int, target: Target, schedule: Schedule) -> dict[Value, Taken]:
    """How ``dot``, within so many loops, takes operands that are computed: wgmma has A in fragments, and B of 8 or 32
    bits with its rows along K."""
    group = choose_warp_group(dot, target, schedule)
    if group is None:
        return {}
    left, fragments = dot.a, group.a
    while isinstance(view := left.op, Permute):
        left, fragments = view.x, operand_layout(view, fragments)
    taken = {left: Taken(fragments, bits_of(left.type), loops)}
    bits = bits_of(dot.b.type)
    if (through := transposing(dot.b.type.shape, 0, schedule.num_warps, bits)) is not None:
        taken[dot.b] = Taken(through[0], bits, loops, k_axis=0)
    return {operand: how for operand, how in taken.items() if not isinstance(operand.op, Slot)}


def layout_as_taken(reads: list[RingRead], taken: list[Taken], vectors: LinearLayout) -> LinearLayout | None:
    """The layout in which a product takes what is made of ``reads``, if reading them so costs less than reading them as
    ``vectors`` and converting; None otherwise, and where several products want it differently."""
    if len({want.layout for want in taken}) != 1 or not {w.loops for w in taken} <= {read.loops for read in reads}:
        return None
    want = taken[0]
    if want.k_axis is not None:
        along, across = (contiguous_registers(vectors, axis) for axis in (want.k_axis, 1 - want.k_axis))
        if across <= along:
            return None  # rows along K are written at once
    if want.layout.free_bits("warp"):
        return None  # several warps would compute the same
    direct, through = (sum(_read_cost(read, layout) for read in reads) for layout in (want.layout, vectors))
    return want.layout if direct <= through + _conversion_cost(vectors, want) else None


def _read_cost(read: RingRead, layout: LinearLayout) -> int:
    return plan_local_load(read.place, layout, read.bits).read.cost


def _conversion_cost(source: LinearLayout, want: Taken) -> int:
    plan = plan_conversion(source, want.layout, want.bits)
    if isinstance(plan, WarpShuffle):
        return plan.cost
    if not isinstance(plan, SharedMemory):
        return 0
    by_matrices = plan_operand(source, want.layout, want.bits)
    moved = plan if by_matrices is None else by_matrices
    return moved.write.cost + moved.read.cost + BARRIER_COST
