"""Loads, stores and atomics."""

from __future__ import annotations

from typing import Protocol

from ..errors import TypeMismatch
from ..ir.types import I1, I8, Element, Pointer, Tile
from ..tile import elementwise as ew
from ..tile import memory as mem
from .arithmetic import (
    as_condition,
    as_tensor,
    broadcast_all,
    broadcast_to_shape,
    cast_to,
)
from .builtin import builtin
from .context import current
from .tensor import Operand, emit, tensor


def _pointee(pointer: object, what: str) -> Element:
    if not isinstance(pointer, tensor) or not isinstance(pointer.dtype, Pointer):
        shown = pointer.type if isinstance(pointer, tensor) else repr(pointer)
        raise TypeMismatch(
            f"{what} needs a pointer, got {shown}",
            hint="pass an array to the kernel and add offsets to its parameter",
        )
    return pointer.dtype.pointee


def _memory_pointer(pointer: tensor) -> tensor:
    """Booleans live in memory as bytes."""
    element = pointer.dtype
    if isinstance(element, Pointer) and element.pointee == I1:
        return emit(ew.Bitcast(pointer.value, Pointer(I8, element.const)))
    return pointer


def _mask_for(shape: tuple[int, ...], mask: Operand | None) -> tensor | None:
    if mask is None or mask is True:
        return None
    condition = as_condition(mask)
    if not _extends_to(condition.shape, shape):
        raise TypeMismatch(f"a mask of shape {list(condition.shape)} does not fit pointers of shape {list(shape)}")
    return broadcast_to_shape(condition, shape)


def _extends_to(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a tile of ``shape`` can be repeated up to ``wanted``."""
    ends = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(n in (1, m) for n, m in zip(shape, ends, strict=True))


@builtin
def load(
    pointer: tensor,
    mask: Operand | None = None,
    other: Operand | None = None,
    boundary_check: object = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> tensor:
    """Read through ``pointer`` (a scalar or a tile of pointers); the result has its shape and the pointee's type.

    Elements where ``mask`` is false are not touched; they are ``other``, or undefined without it. ``mask`` and
    ``other`` broadcast to the pointers' shape, ``other`` is converted to the pointee's type; a tile of a mask makes a
    tile of one pointer.

    ``cache_modifier``: "" (default), ".ca", ".cg", ".cs", ".cv"; ``eviction_policy``: "" (default), "evict_first",
    "evict_last"; ``volatile``: PTX's ld.volatile, without modifiers.

    Raises TypeMismatch: not a pointer, ``other`` without a mask, a shape that does not fit, an unknown modifier, or
    ``boundary_check`` and ``padding_option``, which belong to block pointers.
    """
    pointee = _pointee(pointer, "load")
    if other is not None and mask is None:
        raise TypeMismatch("'other' has no effect without a mask", hint="pass mask=...")
    if boundary_check or padding_option:
        raise TypeMismatch(
            "boundary_check and padding_option belong to block pointers, which are not supported",
            hint="use a tile of pointers with mask= and other=",
        )
    if mask is not None and isinstance(mask, tensor) and mask.shape and not pointer.shape:
        pointer = broadcast_to_shape(pointer, mask.shape)
    condition = _mask_for(pointer.shape, mask)
    stored = I8 if pointee == I1 else pointee
    filling = None
    if other is not None and condition is not None:
        filling = broadcast_to_shape(_cast_operand(other, stored), pointer.shape).value
    op = mem.Load(
        _memory_pointer(pointer).value,
        condition.value if condition is not None else None,
        filling,
        cache_modifier,
        eviction_policy,
        volatile,
    )
    loaded = emit(op)
    return cast_to(loaded, I1) if pointee == I1 else loaded


def _cast_operand(x: Operand, type: Element) -> tensor:
    if isinstance(x, tensor):
        return cast_to(x, type)
    if not isinstance(x, bool | int | float):
        raise TypeMismatch(f"memory of {type} holds numbers, got {x!r}")
    if isinstance(type, Pointer):
        return emit(ew.Constant(int(x), Tile(type)))
    return as_tensor(float(x) if type.is_float else _wrapped(x), type)


def _wrapped(x: int | float | bool) -> int | bool:
    if isinstance(x, float):
        if x != int(x):
            raise TypeMismatch(f"{x} is not an integer")
        return int(x)
    return x


@builtin
def store(
    pointer: tensor,
    value: Operand,
    mask: Operand | None = None,
    boundary_check: object = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Write ``value``, converted to the pointee's type and broadcast, where ``mask`` is true.

    ``mask`` broadcasts to the pointers' shape; without it every element is written. Where pointers coincide, one of the
    values is left. ``cache_modifier``: "" (default), ".wb", ".cg", ".cs", ".wt"; ``eviction_policy``: "" (default),
    "evict_first", "evict_last".

    Raises TypeMismatch: not a pointer, a const one, a value or mask of a shape that does not fit, an unknown modifier,
    or ``boundary_check``, which belongs to block pointers.
    """
    pointee = _pointee(pointer, "store")
    if boundary_check:
        raise TypeMismatch(
            "boundary_check belongs to block pointers, which are not supported",
            hint="use a tile of pointers with mask=",
        )
    stored = I8 if pointee == I1 else pointee
    x = _cast_operand(as_condition(value) if pointee == I1 else value, stored)
    if not pointer.shape and (x.shape or (isinstance(mask, tensor) and mask.shape)):
        raise TypeMismatch(
            f"a store through one pointer takes one value, got {x.type}",
            hint="add offsets such as tl.arange to the pointer",
        )
    if not _extends_to(x.shape, pointer.shape):
        raise TypeMismatch(f"a value of {x.type} does not fit pointers of shape {list(pointer.shape)}")
    condition = _mask_for(pointer.shape, mask)
    current().builder.emit(
        mem.Store(
            _memory_pointer(pointer).value,
            broadcast_to_shape(x, pointer.shape).value,
            condition.value if condition is not None else None,
            cache_modifier,
            eviction_policy,
        )
    )


def _atomic(
    kind: str,
    pointer: tensor,
    value: Operand,
    mask: Operand | None,
    sem: str | None,
    scope: str | None,
) -> tensor:
    pointee = _pointee(pointer, f"atomic_{kind}")
    x = _cast_operand(value, pointee)
    pointer, x = broadcast_all(pointer, x)
    condition = _mask_for(pointer.shape, mask)
    return emit(
        mem.AtomicRMW(
            pointer.value,
            x.value,
            condition.value if condition is not None else None,
            kind,
            sem or "acq_rel",
            scope or "gpu",
        )
    )


class AtomicFunction(Protocol):
    """The signature that all read-modify-write functions share."""

    def __call__(
        self,
        pointer: tensor,
        val: Operand,
        mask: Operand | None = None,
        sem: str | None = None,
        scope: str | None = None,
    ) -> tensor: ...


def _read_modify_write(kind: str, meaning: str) -> AtomicFunction:
    def function(
        pointer: tensor,
        val: Operand,
        mask: Operand | None = None,
        sem: str | None = None,
        scope: str | None = None,
    ) -> tensor:
        return _atomic(kind, pointer, val, mask, sem, scope)

    function.__name__ = function.__qualname__ = f"atomic_{kind}"
    function.__doc__ = (
        f"{meaning} in one step; the result is what was there. "
        "``sem``: relaxed, acquire, release, acq_rel (default); ``scope``: cta, gpu (default), sys."
    )
    return builtin(function)


atomic_add = _read_modify_write("add", "memory += val")
atomic_max = _read_modify_write("max", "memory = max(memory, val)")
atomic_min = _read_modify_write("min", "memory = min(memory, val)")
atomic_and = _read_modify_write("and", "memory &= val")
atomic_or = _read_modify_write("or", "memory |= val")
atomic_xor = _read_modify_write("xor", "memory ^= val")
atomic_xchg = _read_modify_write("xchg", "memory = val")


@builtin
def atomic_cas(
    pointer: tensor,
    cmp: Operand,
    val: Operand,
    sem: str | None = None,
    scope: str | None = None,
) -> tensor:
    """Where memory equals ``cmp`` replace it by ``val``, in one step; the result is what was there.

    The operands broadcast with the pointers; both are converted to the pointee's type, which is the result's. ``sem``:
    relaxed, acquire, release, acq_rel (default); ``scope``: cta, gpu (default), sys. Raises TypeMismatch for a pointee
    below 16 bits.
    """
    pointee = _pointee(pointer, "atomic_cas")
    expected, value = _cast_operand(cmp, pointee), _cast_operand(val, pointee)
    pointer, expected, value = broadcast_all(pointer, expected, value)
    return emit(mem.AtomicCAS(pointer.value, expected.value, value.value, sem or "acq_rel", scope or "gpu"))


@builtin
def debug_barrier() -> None:
    """All threads of the program wait for each other; nothing happens on targets where a program is one thread."""
    current().builder.emit(mem.Barrier())
