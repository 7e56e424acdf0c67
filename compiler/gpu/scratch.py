"""Shared memory that operations use for themselves: how much each needs, and where it lies.

Scratch lives as long as its operation, so all of it could start at 0; operations that follow each other get different
places as long as that costs nothing, because then no barrier is needed between them (see :mod:`.barriers`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import OutOfResources
from ..ir.core import Function, Op, Value, uses
from ..launch_recipe import LaunchRecipe
from ..layout import Conversion, LinearLayout, SharedMemory, plan_conversion
from ..layout.access import element_bytes_of
from ..target import Target
from ..tile.matmul import Dot
from ..tile.memory import AtomicCAS, AtomicRMW
from ..tile.reduction import Reduce
from .operands import OperandPlan, plan_operand
from .ops import ConvertLayout
from .reduction import bits_of, plan_reduction

#: Shared memory that may be spent on keeping neighbours apart: little enough not to cost occupancy.
SMALL_BYTES = 2 * 1024
ROTATION_BYTES = 32 * 1024
ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes ``start`` to ``end`` (exclusive) of shared memory."""

    start: int
    end: int

    def overlaps(self, other: ByteRange) -> bool:
        """Whether the two share a byte."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where the scratch of each operation lies, and how many bytes there are in all."""

    places: dict[Op, ByteRange]
    total: int


@dataclass(eq=False)
class GpuFunction(Function):
    """A function whose tiles have layouts and whose scratch has its place: what back ends lower. ``recipe``: what a
    launch has to do; None: start the threads of ``num_warps`` warps and nothing else."""

    allocation: Allocation = field(default_factory=lambda: Allocation({}, 0))
    recipe: LaunchRecipe | None = None


def allocate(function: Function, target: Target) -> Allocation:
    """Place all scratch of ``function``; raises OutOfResources when the largest does not fit ``target``."""
    used = uses(function)
    needs = [(op, size) for op in function.walk() if (size := scratch_bytes(op, used))]
    largest = max((size for _, size in needs), default=0)
    if largest > target.shared_bytes:
        raise OutOfResources("shared memory", largest, target.shared_bytes)
    roomy = max(largest, SMALL_BYTES, min(2 * largest, ROTATION_BYTES))
    limit = min(roomy, target.shared_bytes)
    places: dict[Op, ByteRange] = {}
    cursor = total = 0
    for op, size in needs:
        start = cursor if cursor + size <= limit else 0
        cursor = -(-(start + size) // ALIGNMENT) * ALIGNMENT
        places[op] = ByteRange(start, start + size)
        total = max(total, start + size)
    return Allocation(places, total)


def scratch_bytes(op: Op, used: dict[Value, list[Op]]) -> int:
    """Shared memory in bytes that ``op`` needs while it runs."""
    match op:
        case ConvertLayout():
            return _conversion_bytes(op)
        case Reduce():
            plan = plan_reduction(_layout(op.inputs[0]), op.axis)
            return sum(plan.scratch_bytes(bits_of(v.type)) for v in op.inputs)
        case Dot():
            return sum(v.type.size * element_bytes_of(bits_of(v.type)) for v in (op.a, op.b))
        case AtomicRMW() | AtomicCAS() if op.result in used and is_shared_by_threads(op.result):
            return op.result.type.size * element_bytes_of(bits_of(op.result.type))
        case _:
            return 0


def _conversion_bytes(op: ConvertLayout) -> int:
    plan = choose_conversion(op)
    return plan.bytes if isinstance(plan, SharedMemory | OperandPlan) else 0


def choose_conversion(op: ConvertLayout) -> Conversion | OperandPlan:
    """How ``op`` moves its tile; by ldmatrix where that is possible and shared memory is needed anyway."""
    source, result, bits = _layout(op.x), _layout(op.result), bits_of(op.x.type)
    plan = plan_conversion(source, result, bits)
    if isinstance(plan, SharedMemory):
        return plan_operand(source, result, bits) or plan
    return plan


def _layout(value: Value) -> LinearLayout:
    layout = value.type.layout
    if layout is None:
        raise OutOfResources("layouts", 1, 0, hint=f"{value!r} has no layout")
    return layout


def is_shared_by_threads(value: Value) -> bool:
    """Whether several threads hold the same element, so that only one of them may touch memory for it."""
    layout = value.type.layout
    return layout is None or bool(layout.free_bits("lane") or layout.free_bits("warp"))
