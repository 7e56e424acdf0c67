"""Loads, stores and atomics. Only lanes whose mask is true ever reach the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import MemoryAccessError
from ...ir.core import Op, Value
from ...tile import blocks
from ...tile import memory as m
from .memory import BadAddress
from .numbers import Array, dtype_of, rounded, widened
from .program import Program, evaluates


def _active(mask: Value | None, shape: tuple[int, ...], program: Program) -> Array:
    """Flat indices of the lanes to access, in order."""
    size = int(np.prod(shape, dtype=np.int64))
    return np.arange(size) if mask is None else np.flatnonzero(program.get(mask))


def _let_others_run(program: Program) -> None:
    """Before an access by which programs learn of each other."""
    if program.turn is not None:
        program.turn()


def _explain(error: BadAddress, op: Op, lanes: Array, shape: tuple[int, ...], program: Program) -> MemoryAccessError:
    index = np.unravel_index(int(lanes[error.lane]), shape) if shape else ()
    where = f" at {op.location}" if op.location else ""
    return MemoryAccessError(
        f"{op.mnemonic}{where} by program {program.program_id}, tile index"
        f" {tuple(int(i) for i in index)}: {error.message}",
        hint="mask the elements that the array does not have",
    )


@evaluates(m.Load)
def load(op: m.Load, program: Program) -> Sequence[Array]:
    pointer, shape = program.held[op.pointer], op.pointer.type.shape
    dtype = dtype_of(op.result.type.elem)
    if op.volatile:
        _let_others_run(program)
    addresses = pointer.array.reshape(-1)
    lanes = program.admitted(op, addresses, _active(op.mask, shape, program))
    if op.other is not None:
        out = np.broadcast_to(program.get(op.other), shape).flatten()
    else:
        out = program.undefined(shape, op.result).reshape(-1)
    try:
        out[lanes] = program.memory.load(addresses[lanes], dtype, pointer.origin)
    except BadAddress as error:
        raise _explain(error, op, lanes, shape, program) from None
    program.memory.foreign |= op.result.type.is_pointer
    return (out.reshape(shape),)


@evaluates(m.Store)
def store(op: m.Store, program: Program) -> Sequence[Array]:
    pointer, shape = program.held[op.pointer], op.pointer.type.shape
    addresses = pointer.array.reshape(-1)
    lanes = program.admitted(op, addresses, _active(op.mask, shape, program))
    values = program.get(op.value).reshape(-1)[lanes]
    try:
        program.memory.store(addresses[lanes], values, pointer.origin)
    except BadAddress as error:
        raise _explain(error, op, lanes, shape, program) from None
    return ()


def _box(op: blocks.BlockLoad | blocks.BlockStore, shape: tuple[int, ...], program: Program) -> tuple[Array, Array]:
    """Addresses of the elements of a box, in order, and the flat indices of those that the array has."""
    base = program.held[op.base]
    leading = len(op.sizes) - len(shape)
    distance: Array = np.zeros(shape, np.int64)
    inside: Array = np.ones(shape, np.bool_)
    for dim, (size, stride, offset) in enumerate(zip(op.sizes, op.strides, op.offsets, strict=True)):
        index = np.asarray(program.item(offset), np.int64)
        if dim >= leading:
            line = [n if d == dim - leading else 1 for d, n in enumerate(shape)]
            index = index + np.arange(shape[dim - leading]).reshape(line)
        distance = distance + index * np.int64(program.item(stride))
        if op.checked[dim]:
            inside = inside & (index >= 0) & (index < np.int64(program.item(size)))
    bytes_each = dtype_of(op.base.type.pointee).itemsize
    addresses = base.array + (distance * bytes_each).astype(np.uint64)
    return np.broadcast_to(addresses, shape).reshape(-1), np.flatnonzero(np.broadcast_to(inside, shape))


@evaluates(blocks.BlockLoad)
def block_load(op: blocks.BlockLoad, program: Program) -> Sequence[Array]:
    dtype = dtype_of(op.result.type.elem)
    out = np.full(op.shape, np.nan if op.padding == "nan" else 0, dtype).reshape(-1)
    addresses, inside = _box(op, op.shape, program)
    lanes = program.admitted(op, addresses, inside)
    try:
        out[lanes] = program.memory.load(addresses[lanes], dtype, program.held[op.base].origin)
    except BadAddress as error:
        raise _explain(error, op, lanes, op.shape, program) from None
    program.memory.foreign |= op.result.type.is_pointer
    return (out.reshape(op.shape),)


@evaluates(blocks.BlockStore)
def block_store(op: blocks.BlockStore, program: Program) -> Sequence[Array]:
    shape = op.value.type.shape
    addresses, inside = _box(op, shape, program)
    lanes = program.admitted(op, addresses, inside)
    values = program.get(op.value).reshape(-1)[lanes]
    try:
        program.memory.store(addresses[lanes], values, program.held[op.base].origin)
    except BadAddress as error:
        raise _explain(error, op, lanes, shape, program) from None
    return ()


def _total_order(x: Array) -> Array:
    """Signed integers that order floats as IEEE 754's totalOrder."""
    bits = x.view(np.dtype(f"int{8 * x.dtype.itemsize}"))
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "max": np.fmax,
    "min": np.fmin,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, new: new,
}
#: Of f32 and f64.
_COMBINE_ORDERED: dict[str, Callable[[Array, Array], Array]] = {
    **_COMBINE,
    "max": lambda old, new: np.where(_total_order(old) > _total_order(new), old, new),
    "min": lambda old, new: np.where(_total_order(old) < _total_order(new), old, new),
}


@evaluates(m.AtomicRMW)
def atomic_rmw(op: m.AtomicRMW, program: Program) -> Sequence[Array]:
    scalar = op.value.type.scalar
    combined = (_COMBINE_ORDERED if scalar.is_float and scalar.bits >= 32 else _COMBINE)[op.kind]

    def combine(old: Array, lane: int) -> Array:
        new = program.get(op.value).reshape(-1)[lane : lane + 1]
        with np.errstate(all="ignore"):
            made = combined(widened(old, scalar), widened(new, scalar))
        return rounded(made, scalar) if scalar.is_float else made

    return _one_by_one(op, op.mask, combine, program)


@evaluates(m.AtomicCAS)
def atomic_cas(op: m.AtomicCAS, program: Program) -> Sequence[Array]:
    scalar = op.value.type.scalar
    bits = np.dtype(f"uint{scalar.bits}")  # compared as bits: NaN equals itself, 0.0 is not -0.0

    def combine(old: Array, lane: int) -> Array:
        at = slice(lane, lane + 1)
        expected = program.get(op.expected).reshape(-1)[at]
        new = program.get(op.value).reshape(-1)[at]
        return new if old.view(bits)[0] == expected.view(bits)[0] else old

    return _one_by_one(op, None, combine, program)


def _one_by_one(
    op: m.AtomicRMW | m.AtomicCAS,
    mask: Value | None,
    combine: Callable[[Array, int], Array],
    program: Program,
) -> Sequence[Array]:
    """Read, combine and write lane after lane, so lanes with one address see each other."""
    _let_others_run(program)
    pointer, shape = program.held[op.pointer], op.pointer.type.shape
    out = program.undefined(shape, op.results[0]).reshape(-1)
    addresses = pointer.array.reshape(-1)
    for lane in program.admitted(op, addresses, _active(mask, shape, program)):
        at = addresses[lane : lane + 1]
        try:
            old = program.memory.load(at, out.dtype, pointer.origin)
            program.memory.store(at, combine(old, int(lane)).astype(out.dtype), pointer.origin)
        except BadAddress as error:
            raise _explain(error, op, np.asarray([lane]), shape, program) from None
        out[lane] = old[0]
    return (out.reshape(shape),)


@evaluates(m.Barrier, m.GridWait, m.LaunchDependents)
def barrier(op: Op, program: Program) -> Sequence[Array]:
    return ()
