"""``and`` and ``or``, as Triton has them: an operand that is known while compiling is the result where it decides, and
has no effect where it does not. All others meet elementwise, as booleans; one alone is the result as it is."""

from __future__ import annotations

from typing import TypeGuard

from .conditions import logical_and, logical_or
from .tensor import tensor
from .typed import Typed, TypedBool, TypedFloat, TypedInt


def decides(value: object, by: bool) -> bool:
    """Whether a known operand is the result, whatever follows; ``by``: the truth value that decides, True for ``or``.

    Numbers with names are known, but scalars in Triton."""
    return not _is_scalar(value) and bool(value) is by


def _is_scalar(value: object) -> TypeGuard[tensor | TypedInt | TypedFloat]:
    """Whether it is a tensor, or stands for one; what is known to be true or false decides."""
    return isinstance(value, tensor | Typed) and not isinstance(value, TypedBool)


def joined(first: object, second: object, by: bool) -> object:
    """``first or second`` if ``by``, else ``first and second``, where the first does not decide."""
    if not _is_scalar(first) or decides(second, by):
        return second
    if not _is_scalar(second):
        return first
    if isinstance(first, Typed) and isinstance(second, Typed):
        return bool(first or second if by else first and second)
    return (logical_or if by else logical_and)(first, second)
