"""What compiled code is before and after it is loaded onto a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...launch_recipe import Guard
from ...signature import ArgumentType
from ..device import Device
from ..variant.metadata import KernelMetadata
from .hooks import LaunchEvent

GridShape = tuple[int, int, int]
#: A launch as one function, of the grid as users write it and a launch's values, one by one.
Direct = Callable[..., Any]


class Loadable(Protocol):
    """Compiled code, as loading needs it."""

    metadata: KernelMetadata

    @property
    def signature(self) -> Mapping[str, ArgumentType]:
        """Types of the run-time arguments by name, in the order in which they are passed."""
        ...

    @property
    def name(self) -> str:
        """Name of the function in the machine code."""
        ...

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        ...

    @property
    def target(self) -> str:
        """``cpu``, or ``cuda:`` and the architecture."""
        ...

    @property
    def shared(self) -> int:
        """Bytes of shared memory that a program uses."""
        ...

    def code(self) -> bytes:
        """Machine code for the target."""
        ...


class Loaded(Protocol):
    """A kernel on one device."""

    @property
    def device(self) -> Device:
        """Where the kernel is loaded."""
        ...

    @property
    def module(self) -> int:
        """The driver's handle of what was loaded; on a CPU the address of the code."""
        ...

    @property
    def function(self) -> int:
        """The driver's handle of the kernel in it; on a CPU its address."""
        ...

    def launch(self, grid: GridShape, values: tuple[Any, ...], stream: int | None) -> None:
        """Run the kernel on machine values: addresses and numbers in signature order, of an instrumented kernel the
        address of its buffer after them; the grid has no zero."""
        ...

    def bound(self, grid: GridShape, values: tuple[Any, ...]) -> Callable[[int | None], None]:
        """A function that launches on machine values that stay the same, given a stream or None for the current
        one; descriptors and whatever else depends on the values is made here."""
        ...

    def direct(
        self, result: object, count: int, places: Mapping[str, str], guards: Sequence[Guard], otherwise: Direct | None
    ) -> Direct | None:
        """A launch on the current stream, without hooks, as one function that returns ``result``; None where there is
        none.

        It takes ``count`` values, ``v0``, ``v1`` and so on; ``places`` has the text of each argument of the signature,
        made of these. Values that break one of ``guards`` are left to ``otherwise``.
        """
        ...

    def timed_launch(self, event: LaunchEvent, values: tuple[Any, ...], stream: int | None) -> None:
        """Launch for hooks: where a launch is synchronous, note when it began and ended."""
        ...

    def tracks(self, grid: GridShape) -> tuple[int, int]:
        """Of an instrumented kernel: how many programs record in a launch, and how many tracks each of them has."""
        ...

    def ticks_per_ns(self) -> float | None:
        """Of the clock that an instrumented kernel records; None where only its tracks can tell."""
        ...

    def stream(self, stream: int | None) -> int:
        """The stream that a launch would use."""
        ...
