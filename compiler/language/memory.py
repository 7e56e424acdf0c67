"""Loads, stores and atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..errors import TypeMismatch
from ..ir.types import BF16, F16, I1
from ..tile import memory as mem
from .arithmetic import as_tensor, broadcast_all, broadcast_shape, broadcast_to_shape
from .block_pointers import BlockPointer, load_block, store_block
from .builtin import builtin
from .context import current
from .elements import cast_operand, extends_to, from_memory, memory_pointer, pointee_of, stored_as, to_memory
from .tensor import Operand, emit, tensor


def _condition(mask: Operand | None) -> tensor | None:
    """A mask as a tensor; None where it leaves nothing out. Numbers are no masks: who passes offsets has forgotten to
    compare them."""
    if mask is None or mask is True:
        return None
    condition = as_tensor(mask)
    if condition.dtype != I1:
        raise TypeMismatch(
            f"a mask is int1, got {condition.value.type}", hint="write a comparison, such as offsets < n, or mask != 0"
        )
    return condition


def _mask_for(shape: tuple[int, ...], mask: Operand | None) -> tensor | None:
    condition = _condition(mask)
    if condition is None:
        return None
    if not extends_to(condition.shape, shape):
        raise TypeMismatch(f"a mask of shape {list(condition.shape)} does not fit pointers of shape {list(shape)}")
    return broadcast_to_shape(condition, shape)


@builtin
def load(
    pointer: tensor | BlockPointer,
    mask: Operand | None = None,
    other: Operand | None = None,
    boundary_check: object = (),
    padding_option: str = "",
    cache_modifier: str | None = "",
    eviction_policy: str | None = "",
    volatile: bool = False,
) -> tensor:
    """Read through ``pointer`` (a scalar, a tile of pointers, or a block pointer); the result has the pointee's type.

    Elements where ``mask``, int1 or a bool, is false are not touched; they are ``other``, converted to the pointee's
    type, or undefined without it. The result has the shape to which pointers, ``mask`` and ``other`` broadcast.

    ``cache_modifier``: "" (default, as None is), ".ca", ".cg", ".cs", ".cv"; ``eviction_policy``: "" (default),
    "evict_first", "evict_last"; ``volatile``: PTX's ld.volatile, without modifiers.

    Of a block pointer the dimensions in ``boundary_check`` are checked against the array's shape; elements outside are
    ``padding_option``: "zero", also without one, or "nan". Without the check the author promises that there are none.

    Raises TypeMismatch: not a pointer, ``other`` without a mask, a mask that is no int1, a shape that does not fit, an
    unknown modifier, ``mask`` for a block pointer, ``boundary_check`` or ``padding_option`` for another pointer.
    """
    if isinstance(pointer, BlockPointer):
        if mask is not None or other is not None or volatile:
            raise TypeMismatch(
                "mask, other and volatile belong to tiles of pointers",
                hint="use boundary_check= and padding_option= with a block pointer",
            )
        return load_block(pointer, boundary_check, padding_option, cache_modifier or "", eviction_policy or "")
    pointee = pointee_of(pointer, "load")
    if other is not None and mask is None:
        raise TypeMismatch("'other' has no effect without a mask", hint="pass mask=...")
    if boundary_check or padding_option:
        raise TypeMismatch(
            "boundary_check and padding_option belong to block pointers", hint="use mask= and other= with pointers"
        )
    condition = _condition(mask)
    filling = None if other is None or condition is None else cast_operand(other, stored_as(pointee))
    shape = pointer.shape
    for given in (condition, filling):
        shape = broadcast_shape(shape, given.shape) if given is not None else shape
    op = mem.Load(
        broadcast_to_shape(memory_pointer(pointer), shape).value,
        None if condition is None else broadcast_to_shape(condition, shape).value,
        None if filling is None else broadcast_to_shape(filling, shape).value,
        cache_modifier or "",
        eviction_policy or "",
        volatile,
    )
    return from_memory(emit(op), pointee)


@builtin
def store(
    pointer: tensor | BlockPointer,
    value: Operand,
    mask: Operand | None = None,
    boundary_check: object = (),
    cache_modifier: str | None = "",
    eviction_policy: str | None = "",
) -> None:
    """Write ``value``, converted to the pointee's type and broadcast, where ``mask`` is true.

    ``mask``, int1 or a bool, broadcasts to the pointers' shape; without it every element is written. Where pointers
    coincide, one of the values is left. ``cache_modifier``: "" (default, as None is), ".wb", ".cg", ".cs", ".wt";
    ``eviction_policy``: "" (default), "evict_first", "evict_last".

    Through a block pointer, elements outside the array along the dimensions in ``boundary_check`` are left out.

    Raises TypeMismatch: not a pointer, a const one, a mask that is no int1, a value or mask of a shape that does not
    fit, an unknown modifier, ``mask`` for a block pointer, ``boundary_check`` for another pointer.
    """
    if isinstance(pointer, BlockPointer):
        if mask is not None:
            raise TypeMismatch("mask belongs to tiles of pointers", hint="use boundary_check= with a block pointer")
        store_block(pointer, value, boundary_check, cache_modifier or "", eviction_policy or "")
        return
    pointee = pointee_of(pointer, "store")
    if boundary_check:
        raise TypeMismatch("boundary_check belongs to block pointers", hint="use mask= with pointers")
    x = to_memory(value, pointee)
    if not pointer.shape and (x.shape or (isinstance(mask, tensor) and mask.shape)):
        raise TypeMismatch(
            f"a store through one pointer takes one value, got {x.value.type}",
            hint="add offsets such as tl.arange to the pointer",
        )
    if not extends_to(x.shape, pointer.shape):
        raise TypeMismatch(f"a value of {x.value.type} does not fit pointers of shape {list(pointer.shape)}")
    condition = _mask_for(pointer.shape, mask)
    current().builder.emit(
        mem.Store(
            memory_pointer(pointer).value,
            broadcast_to_shape(x, pointer.shape).value,
            condition.value if condition is not None else None,
            cache_modifier or "",
            eviction_policy or "",
        )
    )


def read_modify_write(
    kind: str,
    pointer: tensor,
    value: Operand,
    mask: Operand | None,
    sem: str | None,
    scope: str | None,
) -> tensor:
    """The atomic of ``kind``, of all types that tile IR has it for; operands as those of the language's functions."""
    pointee = pointee_of(pointer, f"atomic_{kind}")
    x = cast_operand(value, pointee)
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

    def __get__(self, pointer: tensor, kind: type[tensor]) -> Callable[..., tensor]:
        """As a method of tensors."""


def _read_modify_write(kind: str, meaning: str) -> AtomicFunction:
    def function(
        pointer: tensor,
        val: Operand,
        mask: Operand | None = None,
        sem: str | None = None,
        scope: str | None = None,
    ) -> tensor:
        pointee = pointee_of(pointer, f"atomic_{kind}")
        if kind in ("max", "min") and pointee in (F16, BF16):
            raise TypeMismatch(
                f"atomic_{kind} of {pointee.code} does not exist",
                hint=f"use memory of float32 or float64, or atomic_{kind} of a tensor descriptor",
            )
        return read_modify_write(kind, pointer, val, mask, sem, scope)

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
    pointee = pointee_of(pointer, "atomic_cas")
    expected, value = cast_operand(cmp, pointee), cast_operand(val, pointee)
    pointer, expected, value = broadcast_all(pointer, expected, value)
    return emit(mem.AtomicCAS(pointer.value, expected.value, value.value, sem or "acq_rel", scope or "gpu"))


@builtin
def debug_barrier() -> None:
    """All threads of the program wait for each other; nothing happens on targets where a program is one thread."""
    current().builder.emit(mem.Barrier())
