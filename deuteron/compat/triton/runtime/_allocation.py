"""Memory that kernels of Triton's allocate while they run. Kernels of deuteron need none, so no allocator is called."""

from __future__ import annotations

from typing import Protocol

from deuteron.compiler.errors import LaunchError
from deuteron.tools import set_allocator

__all__ = ["Allocator", "Buffer", "NullAllocator", "set_allocator"]


class AllocatedMemory(Protocol):
    """Memory of a device."""

    def data_ptr(self) -> int:
        """Its address."""


Buffer = AllocatedMemory


class Allocator(Protocol):
    """Allocates memory for a launch on a stream."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> AllocatedMemory:
        """So many bytes at a multiple of ``alignment``."""


class NullAllocator:
    """The allocator of a program that chose none; raises LaunchError when it is called."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> AllocatedMemory:
        """Refuse."""
        raise LaunchError(f"no allocator is set for {size} bytes", hint="call triton.set_allocator")
