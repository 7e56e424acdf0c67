"""What compiled code is before and after it is loaded onto a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...signature import ArgumentType
from ..device import Device
from ..variant.metadata import KernelMetadata
from .hooks import LaunchEvent

GridShape = tuple[int, int, int]


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

    def launch(self, grid: GridShape, values: tuple[Any, ...], stream: int | None) -> None:
        """Run the kernel on machine values: addresses and numbers in signature order; the grid has no zero."""
        ...

    def bound(self, grid: GridShape, values: tuple[Any, ...]) -> Callable[[int | None], None]:
        """A function that launches on machine values that stay the same, given a stream or None for the current
        one; descriptors and whatever else depends on the values is made here."""
        ...

    def timed_launch(self, event: LaunchEvent, values: tuple[Any, ...], stream: int | None) -> None:
        """Launch for hooks: where a launch is synchronous, note when it began and ended."""
        ...

    def stream(self, stream: int | None) -> int:
        """The stream that a launch would use."""
        ...
