"""What the launches of a search write to, and how the launch behind them finds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Number

from ...signature import leaves


def arrays_named(name: str, arguments: Mapping[str, object]) -> list[object]:
    """An argument, none if it is None; of a tuple what is in it, without numbers."""
    value = arguments.get(name)
    if isinstance(value, tuple):
        return [part for _, part in leaves(name, value) if not isinstance(part, Number | tuple | None)]
    return [] if value is None else [value]


def reset_only(pre_hook: Callable[..., object], arguments: dict[str, object]) -> None:
    """Have a user's ``pre_hook`` reset what it resets, as Triton does when a search has ended; one that takes no
    ``reset_only`` resets as it does before a launch."""
    try:
        inspect.signature(pre_hook).bind(arguments, reset_only=True)
    except (TypeError, ValueError):  # ValueError: a function of C that does not say what it takes
        pre_hook(arguments)
    else:
        pre_hook(arguments, reset_only=True)
