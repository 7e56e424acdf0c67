"""``and`` and ``or``, as Triton has them: an operand that is known while compiling is the result where it decides, and
has no effect where it does not. All others meet elementwise, as booleans; one alone is the result as it is."""

from __future__ import annotations

from .conditions import logical_and, logical_or
from .tensor import tensor
from .typed import Typed


def decides(value: object, by: bool) -> bool:
    """Whether a known operand is the result, whatever follows; ``by``: the truth value that decides, True for ``or``.

    Numbers with names are known, but scalars in Triton."""
    return not isinstance(value, tensor | Typed) and bool(value) is by


def joined(first: object, second: object, by: bool) -> object:
    """``first or second`` if ``by``, else ``first and second``, where the first does not decide."""
    if not isinstance(first, tensor | Typed) or decides(second, by):
        return second
    if not isinstance(second, tensor | Typed):
        return first
    if isinstance(first, Typed) and isinstance(second, Typed):
        return bool(first or second if by else first and second)
    return (logical_or if by else logical_and)(first, second)
