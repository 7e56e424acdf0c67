"""What launchers look at on every call to know whether what they have prepared is still what is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class _Epoch:
    """Counts changes of knobs and switches, so that launchers can keep what they read until one changes."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


#: Compared by launchers on every call: one attribute read instead of a look into the environment.
epoch = _Epoch()


class Switch(Generic[T]):
    """What the program, not its environment, says about all launches of the process; kernels forget what they have
    prepared when it changes."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def set(self, value: T) -> None:
        """Let ``value`` count from now on."""
        if value != self.value:
            self.value = value
            epoch.value += 1

    @contextmanager
    def scope(self, value: T) -> Iterator[None]:
        """Let ``value`` count inside a ``with`` block, for all threads."""
        before = self.value
        self.set(value)
        try:
            yield
        finally:
            self.set(before)
