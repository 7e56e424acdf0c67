"""Where materialised tiles live: one scratch area per thread, offsets fixed at compile time."""

from __future__ import annotations

from dataclasses import dataclass

from ...llvm.typed import Typed

ALIGNMENT = 64  # bytes: a cache line and the widest vector register


@dataclass(slots=True, eq=False)
class Buffer:
    """A range of the scratch area. A pinned one belongs to a loop and is not freed with the values in it."""

    offset: int
    size: int
    pinned: bool = False


class Arena:
    """First-fit allocation of buffers whose lifetimes follow the emission of the program."""

    def __init__(self) -> None:
        self.size = 0
        self._live: list[Buffer] = []

    def allocate(self, size: int) -> Buffer:
        """A buffer of ``size`` bytes, 64-byte aligned, apart from all live ones."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        position = 0
        for index, live in enumerate(self._live):
            if live.offset - position >= size:
                return self._insert(index, Buffer(position, size))
            position = live.offset + live.size
        return self._insert(len(self._live), Buffer(position, size))

    def free(self, buffer: Buffer) -> None:
        """Give the bytes of ``buffer`` back; it must be live."""
        self._live.remove(buffer)

    def _insert(self, index: int, buffer: Buffer) -> Buffer:
        self._live.insert(index, buffer)
        self.size = max(self.size, buffer.offset + buffer.size)
        return buffer


@dataclass(slots=True)
class Stored:
    """A tile value in a buffer, row-major.

    ``lane_stride``: at every aligned chunk of ``width`` elements along dimension ``axis`` the values are a progression
    with this stride (known from how they were computed). ``holds``: that is only so when this i1 is true at run time.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    lane_stride: int | None = None
    width: int = 0
    axis: int = 0
    holds: Typed | None = None
