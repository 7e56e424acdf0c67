"""How a Python function becomes a function of the kernel language."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .constexpr import constexpr, unwrap

P = ParamSpec("P")
R = TypeVar("R")

_builtins: set[object] = set()


def builtin(function: Callable[P, R]) -> Callable[P, R]:
    """Register ``function`` as callable from kernels. Its arguments arrive as tensors or plain Python values."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if any(type(a) is constexpr for a in args):
            args = tuple(unwrap(a) for a in args)  # type: ignore[assignment]
        if kwargs and any(type(a) is constexpr for a in kwargs.values()):
            kwargs = {k: unwrap(v) for k, v in kwargs.items()}  # type: ignore[assignment]
        return function(*args, **kwargs)

    _builtins.add(call)
    return call


def is_builtin(candidate: object) -> bool:
    """Whether kernels may call ``candidate``."""
    try:
        return candidate in _builtins
    except TypeError:  # not hashable
        return False
