"""Multi-buffering: the shared memory of streams. Loops that follow each other share the rings of tiles of one form."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Op, Value
from ...ir.types import Scalar, Tile
from ...layout import shared_linear, shared_tensor_core, widest_swizzle
from ..asynchronous import Acquire, Fetch, FetchTile, Pipe, RingBuffer, Slot
from .plan import Group, Stream, Streamed, StreamedTile


def ring_tile(loaded: Tile, axis: int, *, by_threads: bool = False) -> Tile | None:
    """The place of a tile in a ring, ``axis`` the contiguous one; None for what tensor cores do not read. Where only
    threads read it, ``by_threads``, rows may be short, as those of packed numbers are."""
    elem, order = loaded.elem, (axis, 1 - axis)
    if not isinstance(elem, Scalar) or elem.bits not in (8, 16, 32, 64):
        return None
    swizzle = widest_swizzle(loaded.shape[axis] * elem.bytes)
    if swizzle:
        return loaded.in_shared_memory(shared_tensor_core(loaded.shape, elem.bits, swizzle, order))
    return loaded.in_shared_memory(shared_linear(loaded.shape, order)) if by_threads else None


@dataclass(frozen=True, eq=False)
class Rings:
    """The memory of one group of streamed tiles: a pipe, and a ring for each tile."""

    group: Group
    pipe: Pipe
    buffers: tuple[RingBuffer, ...]

    def fetch(self, env: dict[Value, Value]) -> list[Op]:
        """Fill the next slot with tiles whose addresses are looked up in ``env``."""
        made: list[Op] = []
        if self.group.engine == "tma":
            made.append(Acquire(self.pipe.result, self.group.bytes))
        for source, buffer in zip(self.group.sources, self.buffers, strict=True):
            fetch = self._fetch(source, buffer.result, env)
            fetch.location = source.load.location
            made.append(fetch)
        return made

    def _fetch(self, source: Streamed, ring: Value, env: dict[Value, Value]) -> Fetch | FetchTile:
        pipe = self.pipe.result
        if isinstance(source, StreamedTile):
            mask = source.load.mask
            pointer = env.get(source.load.pointer, source.load.pointer)
            vector = source.width // source.tile.elem.bytes
            return FetchTile(ring, pipe, pointer, env.get(mask, mask) if mask else None, vector, source.axis)
        box = source.load
        sizes, strides, offsets = (
            tuple(env.get(v, v) for v in values) for values in (box.sizes, box.strides, box.offsets)
        )
        base = env.get(box.base, box.base)
        return Fetch(
            ring, pipe, base, sizes, strides, offsets, box.checked, source.descriptor, source.width, source.whole
        )

    def slots(self, replaced: dict[Value, Value]) -> list[Op]:
        """The received slot of each tile, which takes the place of what was loaded."""
        made = [Slot(buffer.result, self.pipe.result) for buffer in self.buffers]
        for source, slot in zip(self.group.sources, made, strict=True):
            slot.location = source.load.location
            slot.result.name = source.load.result.name
            replaced[source.load.result] = slot.result
        return list(made)


class StreamMemory:
    """Pipes and rings; ``readers``: as in :class:`~..asynchronous.Pipe`."""

    def __init__(self, readers: int) -> None:
        self.readers = readers
        self._made: dict[tuple[str, tuple[Tile, ...], int, int], tuple[Pipe, tuple[RingBuffer, ...]]] = {}

    def of(self, stream: Stream) -> list[Rings]:
        """The memory of each group of ``stream``, those of earlier streams where they have the same form."""
        found: list[Rings] = []
        for group in stream.groups:
            tiles = tuple(source.tile for source in group.sources)
            before = sum(tuple(s.tile for s in r.group.sources) == tiles for r in found)
            key = (group.engine, tiles, stream.slots, before)
            if key not in self._made:
                buffers = tuple(RingBuffer(tile, stream.slots) for tile in tiles)
                self._made[key] = Pipe(stream.slots, self.readers, group.engine), buffers
            found.append(Rings(group, *self._made[key]))
        return found

    @property
    def ops(self) -> list[Op]:
        """What makes the memory; it belongs at the beginning of the function."""
        return [op for pipe, buffers in self._made.values() for op in (pipe, *buffers)]
