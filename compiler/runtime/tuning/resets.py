"""What the launches of a search write to, and how the launch behind them finds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from numbers import Number

from ...signature import leaves


def arrays_named(name: str, arguments: Mapping[str, object]) -> list[object]:
    """An argument, none if it is None; of a tuple what is in it, without numbers."""
    value = arguments.get(name)
    if isinstance(value, tuple):
        return [part for _, part in leaves(name, value) if not isinstance(part, Number | tuple | None)]
    return [] if value is None else [value]


@contextmanager
def restored(put_back: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Put arrays back behind a search, also behind one that an error or Ctrl-C ends: they are the caller's."""
    try:
        yield
    except BaseException:
        for put in put_back:
            with suppress(Exception):  # after an error a GPU may do nothing more; that first error is the one to tell
                put()
        raise
    for put in put_back:
        put()


def reset_only(pre_hook: Callable[..., object], arguments: dict[str, object]) -> None:
    """Have a user's ``pre_hook`` reset what it resets, as Triton does when a search has ended; one that takes no
    ``reset_only`` resets as it does before a launch."""
    try:
        inspect.signature(pre_hook).bind(arguments, reset_only=True)
    except (TypeError, ValueError):  # ValueError: a function of C that does not say what it takes
        pre_hook(arguments)
    else:
        pre_hook(arguments, reset_only=True)
