"""The plan that both expansions of streams follow: loops, and the tiles that are brought for them."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Op
from ...ir.types import Tile
from ...tile.blocks import BlockLoad
from ...tile.control import For
from ...tile.memory import Load
from .descriptors import Descriptors


@dataclass(frozen=True, eq=False)
class StreamedBox:
    """One streamed box. ``tile``: its place in a ring; ``descriptor``: the number of its TMA descriptor or -1;
    ``width``: the bytes that a thread copies at once where there is none. ``whole``: these are inside the array or
    outside of it, never in part."""

    load: BlockLoad
    tile: Tile
    descriptor: int
    width: int
    whole: bool


@dataclass(frozen=True, eq=False)
class StreamedTile:
    """A streamed tile of elements wherever their pointers say. ``tile``: its place in a ring; ``axis``: along which
    neighbours are neighbours in memory, ``width`` bytes at a time."""

    load: Load
    tile: Tile
    axis: int
    width: int


Streamed = StreamedBox | StreamedTile


@dataclass(frozen=True, eq=False)
class Group:
    """Tiles that one product waits for: they share a pipe. ``engine`` copies them all."""

    sources: tuple[Streamed, ...]
    engine: str

    @property
    def bytes(self) -> int:
        """Size of one slot of all tiles."""
        return sum(source.tile.size * source.tile.elem.bytes for source in self.sources)


@dataclass(frozen=True, eq=False)
class Stream:
    """A loop and the tiles that are brought for it, through rings of ``slots`` slots. ``refilled``: a slot is filled
    again in the iteration that reads it, behind its products, and not in the next one. ``tables``: loads for the next
    iteration, of what decides where it reads; where there is no such iteration they read nothing."""

    loop: For
    groups: tuple[Group, ...]
    slots: int
    refilled: bool = False
    tables: frozenset[Op] = frozenset()

    @property
    def loads(self) -> list[BlockLoad | Load]:
        """All streamed loads in program order."""
        found: dict[Op, BlockLoad | Load] = {s.load: s.load for group in self.groups for s in group.sources}
        return [found[op] for op in self.loop.body.ops if op in found]


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """All streams of a function, in program order, at least one. ``descriptors``: of their boxes; those of results that
    leave through the copy engine come after them. ``registers``: about how many a thread has in a loop between whose
    products only another CTA hides what threads do, 0 where there is none."""

    streams: tuple[Stream, ...]
    descriptors: Descriptors
    registers: int

    @property
    def slots(self) -> int:
        """Of the longest ring."""
        return max(stream.slots for stream in self.streams)
