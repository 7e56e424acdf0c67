"""Conversions to tensor core operands through shared memory, read back by ldmatrix.

The tile lies in shared memory along the axis in which its threads hold consecutive elements, so that they store 16
bytes at a time; rows are swizzled by 16-byte chunks so that neither side has bank conflicts. ldmatrix then hands out
fragments, transposed where the matrix product wants the other axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...hardware import VECTOR_BYTES, WAVE_BYTES
from ...layout import (
    LayoutError,
    LinearLayout,
    MatrixAccess,
    SharedAccess,
    SharedLayout,
    contiguous_registers,
    plan_matrix_access,
    plan_matrix_store,
    plan_shared_access,
    shared_linear,
    shared_swizzled,
)
from ...layout.access import element_bytes_of


@dataclass(frozen=True, slots=True)
class OperandPlan:
    """``write`` stores the source's registers, a barrier follows, ``read`` loads the result's."""

    write: SharedAccess
    read: MatrixAccess
    bytes: int


@dataclass(frozen=True, slots=True)
class LocalLoad:
    """A tile in shared memory into registers: by ldmatrix where the fragments have its shape."""

    read: SharedAccess | MatrixAccess


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Registers into a tile in shared memory, ``bytes`` of it: by stmatrix where they have its shape and the machine
    has the instruction."""

    write: SharedAccess | MatrixAccess
    bytes: int


def plan_local_load(shared: SharedLayout, result: LinearLayout, element_bits: int) -> LocalLoad:
    """How the threads of ``result`` read a tile that lies in shared memory."""
    return LocalLoad(
        plan_matrix_access(result, shared, element_bits) or plan_shared_access(result, shared, element_bits)
    )


def plan_local_store(
    source: LinearLayout, shared: SharedLayout, element_bits: int, *, matrices: bool = False
) -> LocalStore:
    """How the threads of ``source`` write a tile of shared memory; ``matrices``: there is stmatrix."""
    size = source.size * element_bytes_of(element_bits)
    by_matrices = plan_matrix_store(source, shared, element_bits) if matrices else None
    return LocalStore(by_matrices or plan_shared_access(source, shared, element_bits), size)


@lru_cache(maxsize=1024)
def scratch_layout(source: LinearLayout, element_bits: int) -> SharedLayout:
    """Where a matrix lies that its threads store and others read element by element: rows along the axis in which
    registers are neighbours, so that neither side has to split its accesses."""
    widest = max((0, 1), key=lambda axis: (contiguous_registers(source, axis), axis))
    return _shared_layout(source, element_bits) or shared_linear(source.shape, (widest, 1 - widest))


@lru_cache(maxsize=1024)
def plan_operand(source: LinearLayout, result: LinearLayout, element_bits: int) -> OperandPlan | None:
    """How to convert by ldmatrix; None where fragments or rows do not have its shape."""
    if source.rank != 2:
        return None
    shared = _shared_layout(source, element_bits)
    if shared is None:
        return None
    read = plan_matrix_access(result, shared, element_bits)
    if read is None:
        return None
    write = plan_shared_access(source, shared, element_bits)
    return OperandPlan(write, read, source.size * element_bytes_of(element_bits))


def _shared_layout(source: LinearLayout, element_bits: int) -> SharedLayout | None:
    widest = max((0, 1), key=lambda axis: (contiguous_registers(source, axis), axis))
    size = element_bytes_of(element_bits)
    row_bytes = source.shape[widest] * size
    if row_bytes < VECTOR_BYTES:
        return None
    chunk = VECTOR_BYTES // size
    phases = max(1, min(WAVE_BYTES, row_bytes) // VECTOR_BYTES)
    per_phase = max(1, WAVE_BYTES // row_bytes)
    try:
        return shared_swizzled(
            source.shape,
            (widest, 1 - widest),
            vector=chunk,
            per_phase=per_phase,
            max_phase=min(phases, source.shape[1 - widest]),
        )
    except LayoutError:
        return None
