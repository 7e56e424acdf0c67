"""Conditions: comparisons, what and, or and not make of them, and the choice that they decide."""

from __future__ import annotations

from ..errors import TypeMismatch
from ..ir.types import I1, I64, Pointer
from ..tile import elementwise as ew
from .arithmetic import as_tensor, broadcast_all, cast_to, element_of, is_pointer, meet
from .builtin import builtin
from .context import warn
from .tensor import Operand, emit, tensor


def compare(x: Operand, y: Operand, predicate: str) -> tensor:
    """int1 in the common shape; ``predicate`` is eq ne lt le gt ge.

    Numbers are compared in their common type, where a literal counts as a tensor of its own type: f16 and 1e-8 in f32.
    Pointers are compared by their addresses. With NaN only ne is true. Raises TypeMismatch for a pointer and a number.
    """
    if is_pointer(x) != is_pointer(y):
        raise TypeMismatch(
            f"invalid operands of type {element_of(x).code} and {element_of(y).code}: "
            "an array is compared with a number",
            hint="tl.load reads the number that an array of one element has; p.to(tl.int64) is an address",
        )
    if is_pointer(x):
        a, b = broadcast_all(*(cast_to(as_tensor(p), I64) for p in (x, y)))
    else:
        a, b = meet(as_tensor(x), as_tensor(y))
    return emit(ew.Compare(a.value, b.value, predicate))


def as_condition(x: Operand) -> tensor:
    """``x`` as i1: x != 0."""
    x = as_tensor(x)
    if isinstance(x.dtype, Pointer):
        x = cast_to(x, I64)
    return cast_to(x, I1)


@builtin
def logical_and(x: Operand, y: Operand) -> tensor:
    """x and y elementwise, as int1 in their common shape; numbers and pointers count as x != 0."""
    a, b = broadcast_all(as_condition(x), as_condition(y))
    return emit(ew.And(a.value, b.value))


@builtin
def logical_or(x: Operand, y: Operand) -> tensor:
    """x or y elementwise, as int1 in their common shape; numbers and pointers count as x != 0."""
    a, b = broadcast_all(as_condition(x), as_condition(y))
    return emit(ew.Or(a.value, b.value))


@builtin
def logical_not(x: Operand) -> tensor:
    """not x elementwise, as int1 in the shape of ``x``; numbers and pointers count as x != 0."""
    return emit(ew.Not(as_condition(x).value))


@builtin
def where(condition: Operand, x: Operand, y: Operand) -> tensor:
    """x where condition, else y, in the common type and shape of the three.

    A condition that is not int1 means condition != 0, with a UserWarning. Both sides are evaluated; mask the pointers,
    not the result, to avoid a load. Raises TypeMismatch where shapes do not broadcast, and for two pointer types or a
    pointer and a number.
    """
    if is_pointer(x) or is_pointer(y):
        a, b = as_tensor(x), as_tensor(y)
        if a.dtype != b.dtype:
            raise TypeMismatch(f"where cannot mix {a.value.type} and {b.value.type}")
    else:
        a, b = meet(x, y)
    if isinstance(condition, tensor) and condition.dtype != I1:
        warn(f"tl.where takes an int1 as condition, got {condition.type}: write x != 0")
    c, a, b = broadcast_all(as_condition(condition), a, b)
    return emit(ew.Select(c.value, a.value, b.value))
