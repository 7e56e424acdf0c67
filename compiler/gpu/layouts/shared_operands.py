"""Operands of products in shared memory, where a ring has brought them or by a conversion; those of wgmma in the forms
that it reads, A also from registers."""

from __future__ import annotations

from ...ir.core import Value
from ...ir.types import Scalar, Tile
from ...layout import (
    LinearLayout,
    SharedLayout,
    SharedMemory,
    contiguous_registers,
    matrix_descriptor,
    plan_conversion,
    shared_tensor_core,
    transposing,
    widest_swizzle,
)
from ...tile.shape import Permute
from ..asynchronous import SharedView
from ..ops import ConvertLayout
from .operands import plan_local_store
from .reduction import bits_of
from .relayout import Relayout
from .views import unpermuted


def first_operand(state: Relayout, value: Value, fragments: LinearLayout) -> Value:
    """Operand A: where it lies if that is shared memory; from registers if this loop has just computed it.

    What stays the same over a loop goes to shared memory once, for its registers are better used by the accumulator;
    what would pass through shared memory on its way to the registers stays there.
    """
    seen = _in_shared(state, value, 1)
    if seen is not None:
        return seen
    root = unpermuted(value)
    known = state.made(root)
    if known is not None and (state.depth_of(root) < state.depth or _passes_memory(state, value, fragments)):
        return shared_operand(state, value, k_axis=1)
    return state.demand(value, fragments)


def _passes_memory(state: Relayout, value: Value, fragments: LinearLayout) -> bool:
    """Whether threads hold elements of ``value`` one by one, each in a register of its own, and shuffles do not make
    fragments of them. Vectors go on to registers: on an H200 a product of exponents of what was read in vectors took
    1.10 of its time with them in shared memory (``softmax_mm`` in benchmarks/results:
    2026-11-28-h200-programs/pairs.json beside 2026-11-28-h200-pairs/after.json)."""
    bits, held = bits_of(value.type), state.natural(value)
    if bits != 16 or any(contiguous_registers(held, axis) > 1 for axis in range(held.rank)):
        return False
    return isinstance(plan_conversion(held, fragments, bits), SharedMemory)


def shared_operand(state: Relayout, value: Value, k_axis: int) -> Value:
    """``value`` in shared memory as wgmma reads it; converted where it is made unless it lies there already."""
    seen = _in_shared(state, value, k_axis)
    if seen is not None:
        return seen
    through = _transposing(state, value, k_axis) or (state.natural(value),)
    held = state.demand_through(value, through)
    to = value.type.in_shared_memory(_layout_for(value.type, through[-1], k_axis))
    convert = ConvertLayout(held, to)
    convert.location = value.op.location if value.op is not None else None
    if state.made(unpermuted(value)) is not None:
        return state.convert_beside(value, convert)
    state.append(convert)
    return convert.result


def _transposing(state: Relayout, value: Value, k_axis: int) -> tuple[LinearLayout, ...] | None:
    """The layouts in registers through which elements that lie along the other axis go to shared memory, where wgmma
    reads them along K alone; None for other values."""
    natural = state.natural(value)
    if contiguous_registers(natural, 1 - k_axis) <= contiguous_registers(natural, k_axis):
        return None
    return transposing(value.type.shape, k_axis, natural.warps, bits_of(value.type))


def operand_of_threads(state: Relayout, value: Value) -> Value:
    """An operand that threads read element by element: where it lies if that is shared memory."""
    return _in_shared(state, value) or state.demand(value, state.natural(value))


def _in_shared(state: Relayout, value: Value, k_axis: int | None = None) -> Value | None:
    """``value`` as shared memory that holds it already; with ``k_axis``, in a form that wgmma reads."""
    root, order = value, None
    if isinstance(value.op, Permute):
        root, order = value.op.x, value.op.order
    held = state.made(root)
    if held is None or held.type.shared is None or not isinstance(value.type.elem, Scalar):
        return None
    shared = held.type.shared if order is None else held.type.shared.permute(order)
    if k_axis is not None and matrix_descriptor(shared, k_axis, value.type.elem.bits) is None:
        return None
    if order is None:
        return held
    view = SharedView(held, order)
    state.append(view)
    return view.result


def _layout_for(type: Tile, held: LinearLayout, k_axis: int) -> SharedLayout:
    """K-major, unless the element type allows the other way and the registers hold neighbours along the other axis, or
    are written faster so."""
    bits = type.elem.bits
    fast = k_axis
    if bits == 16 and contiguous_registers(held, 1 - k_axis) > contiguous_registers(held, k_axis):
        fast = 1 - k_axis
    found = [
        shared_tensor_core(type.shape, bits, swizzle, (axis, 1 - axis))
        for axis in (fast, 1 - fast)
        if (swizzle := widest_swizzle(type.shape[axis] * bits // 8)) and (axis == k_axis or bits == 16)
    ]
    if not found:
        raise ValueError(f"no layout of {type} in shared memory suits wgmma")
    return min(found, key=lambda shared: plan_local_store(held, shared, bits, matrices=True).write.cycles)
