"""How values of the language lie in memory: booleans as bytes, everything else as the pointee says."""

from __future__ import annotations

from ..errors import TypeMismatch
from ..ir.types import I1, I8, Element, Pointer, Tile
from ..printable import shown
from ..tile import elementwise as ew
from .arithmetic import as_tensor, cast_to
from .conditions import as_condition
from .promotion import fits
from .tensor import Operand, emit, tensor


def pointee_of(pointer: object, what: str) -> Element:
    """The type that a pointer, or a tile of pointers, points to; raises TypeMismatch for anything else."""
    if not isinstance(pointer, tensor) or not isinstance(pointer.dtype, Pointer):
        found = pointer.value.type if isinstance(pointer, tensor) else shown(pointer)
        raise TypeMismatch(
            f"{what} needs a pointer, got {found}",
            hint="pass an array to the kernel and add offsets to its parameter",
        )
    return pointer.dtype.pointee


def memory_pointer(pointer: tensor) -> tensor:
    """``pointer`` to what lies in memory: to bytes where the language says booleans."""
    element = pointer.dtype
    if isinstance(element, Pointer) and element.pointee == I1:
        return emit(ew.Bitcast(pointer.value, Pointer(I8, element.const)))
    return pointer


def stored_as(pointee: Element) -> Element:
    """The type in which a pointee lies in memory."""
    return I8 if pointee == I1 else pointee


def to_memory(x: Operand, pointee: Element) -> tensor:
    """``x`` as it is written to memory of ``pointee``; raises TypeMismatch for what is no number."""
    return cast_operand(as_condition(x) if pointee == I1 else x, stored_as(pointee))


def from_memory(loaded: tensor, pointee: Element) -> tensor:
    """What was read from memory of ``pointee``, as the language sees it."""
    return cast_to(loaded, I1) if pointee == I1 else loaded


def cast_operand(x: Operand, type: Element) -> tensor:
    """``x`` as ``type``, its shape kept; a number that ``type`` cannot hold is converted from the type that it has by
    itself. Raises TypeMismatch for what is no number."""
    if isinstance(x, tensor):
        return cast_to(x, type)
    if not isinstance(x, bool | int | float):
        raise TypeMismatch(f"memory of {type.code} holds numbers, got {shown(x)}")
    if isinstance(type, Pointer):
        return emit(ew.Constant(int(x), Tile(type)))
    if type.is_float:
        return as_tensor(float(x), type)
    return as_tensor(x, type) if isinstance(x, int) and fits(x, type) else cast_to(as_tensor(x), type)


def extends_to(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a tile of ``shape`` can be repeated up to ``wanted``."""
    ends = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(n in (1, m) for n, m in zip(shape, ends, strict=True))
