"""PyTorch's dtypes as kernels see them, names that are compared and passed on; ``torch.finfo`` and ``torch.iinfo``.

Triton runs what a kernel calls of Python's modules while it compiles. Kernels reach no Python here, but for the limits
of numbers, which are written so in many.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import UnknownName
from ..language.builtin import builtin
from ..language.constexpr import unwrap

_LIMITS = frozenset({"finfo", "iinfo"})
#: What kernels may ask a dtype of PyTorch's.
QUESTIONS = frozenset({"itemsize", "is_floating_point", "is_complex", "is_signed"})


def is_dtype(value: object) -> bool:
    """Whether a value is a dtype of PyTorch's, which is not imported for that."""
    kind = type(value)
    return (kind.__module__, kind.__name__) == ("torch", "dtype")


def is_limits(value: object) -> bool:
    """Whether a value is the class ``torch.finfo`` or ``torch.iinfo``."""
    return isinstance(value, type) and value.__module__ == "torch" and value.__name__ in _LIMITS


@cache
def limits(kind: type) -> Callable[..., DtypeLimits]:
    """``torch.finfo`` or ``torch.iinfo`` in a kernel: a function of a dtype."""

    def call(type: object = None) -> DtypeLimits:
        plain = unwrap(type)
        return DtypeLimits(kind() if plain is None else kind(plain))

    call.__module__, call.__name__, call.__qualname__ = kind.__module__, kind.__name__, kind.__name__
    return builtin(call)


class DtypeLimits:
    """What is known of the numbers of a dtype: ``max``, ``min``, ``eps``, ``tiny`` and ``bits`` among others."""

    def __init__(self, info: Any) -> None:
        self._info = info

    def member(self, name: str) -> object:
        """The number, or name of a dtype, that is called so; raises UnknownName."""
        found = None if name.startswith("_") else getattr(self._info, name, None)
        if not isinstance(found, int | float | str):
            raise UnknownName(f"{self!r} has no attribute {name!r}")
        return found

    def __repr__(self) -> str:
        return f"torch.{type(self._info).__name__}"
