"""Which loops bring tiles from memory to matrix products, and in what form: the plan that both expansions follow.

A loop is streamed if its body reads boxes of arrays (``block_load``) that end in a product. Everything that decides
where a box lies is scalar code, so it can run ahead of the products: in the same threads (:mod:`.multistage`) or in a
warp group of its own (:mod:`.roles`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.core import Block, Effect, Function, Op, Value, uses
from ..ir.types import Pointer, Scalar, Tile
from ..layout import shared_tensor_core, widest_swizzle
from ..target import Target
from ..tile.axis import AxisFacts
from ..tile.blocks import BlockLoad, BlockStore
from ..tile.control import For
from ..tile.elementwise import Constant
from ..tile.matmul import Dot
from ..tile.memory import GridWait, Load
from ..tile.shape import Permute
from .arrays import Arrays
from .descriptors import Descriptors

#: Bytes of a copy by a thread, at least (PTX ISA, "cp.async": 4, 8 or 16).
_SMALLEST_COPY = 4
#: Whose author asks for fewer slots than that wants no copies ahead. Where no more than one fits, it is still better
#: filled by copies than by way of registers.
FEWEST_SLOTS = 2


@dataclass(frozen=True, eq=False)
class StreamedBox:
    """One streamed box. ``tile``: its place in a ring; ``descriptor``: the number of its TMA descriptor or -1;
    ``width``:
    the bytes that a thread copies at once where there is none."""

    load: BlockLoad
    tile: Tile
    descriptor: int
    width: int

    @property
    def bytes(self) -> int:
        """Size of one slot."""
        return self.tile.size * self.tile.elem.bytes


@dataclass(frozen=True, eq=False)
class Group:
    """Boxes that one product waits for: they share a pipe. ``engine`` copies them all."""

    sources: tuple[StreamedBox, ...]
    engine: str

    @property
    def bytes(self) -> int:
        """Size of one slot of all boxes."""
        return sum(source.bytes for source in self.sources)


@dataclass(frozen=True, eq=False)
class Stream:
    """A loop and the boxes that are brought for it, through rings of ``slots`` slots."""

    loop: For
    groups: tuple[Group, ...]
    slots: int

    @property
    def loads(self) -> list[BlockLoad]:
        """All streamed loads in program order."""
        found = {source.load for group in self.groups for source in group.sources}
        return [op for op in self.loop.body.ops if isinstance(op, BlockLoad) and op in found]


def products_of(value: Value, used: dict[Value, list[Op]]) -> list[Dot]:
    """The products that read ``value`` as an operand, through views and elementwise operations; in program order."""
    found: dict[Dot, None] = {}
    seen: set[Value] = set()  # values that meet again, as those of sorting networks, have exponentially many paths

    def follow(value: Value) -> None:
        seen.add(value)
        for op in used.get(value, ()):
            if isinstance(op, Dot):
                if value in (op.a, op.b):
                    found[op] = None
            elif (op.elementwise or isinstance(op, Permute)) and op.results and op.results[0] not in seen:
                follow(op.results[0])

    follow(value)
    return list(found)


def contiguous_axis(op: BlockLoad | BlockStore) -> int | None:
    """The axis of the tile along which elements of the array are neighbours."""
    rank = len(op.shape) if isinstance(op, BlockLoad) else op.value.type.rank
    lead = len(op.strides) - rank
    for axis in reversed(range(rank)):
        made = op.strides[lead + axis].op
        if isinstance(made, Constant) and made.value == 1:
            return axis
    return None


class Finder:
    """Finds the streams of a function for one target. Rings have as many slots as the loop's author says, else
    ``slots``, and at most ``limit``; a loop for which fewer than two are asked is not streamed."""

    def __init__(
        self,
        function: Function,
        facts: AxisFacts,
        target: Target,
        descriptors: Descriptors,
        slots: int,
        limit: int,
    ) -> None:
        self.slots = slots
        self.limit = limit
        self.function = function
        self.facts = facts
        self.target = target
        self.descriptors = descriptors
        self.used = uses(function)
        self.arrays = Arrays(function)
        self.written = self.arrays.written(function)

    def run(self) -> list[Stream]:
        """The streams in program order; loops around streams are not streamed themselves."""
        return [made for loop in _innermost(self.function.body) if (made := self._stream(loop)) is not None]

    def _stream(self, loop: For) -> Stream | None:
        step = loop.step.op
        asked = loop.num_stages or self.slots
        slots = min(asked, self.limit)
        if asked < FEWEST_SLOTS or not slots or not isinstance(step, Constant) or step.value <= 0:
            return None
        if any(isinstance(op, GridWait) for op in loop.body.walk()):  # later iterations' boxes may not be there yet
            return None
        by_product: dict[Dot, list[StreamedBox]] = {}
        for op in loop.body.ops:
            if isinstance(op, BlockLoad) and (source := self._source(op, loop)) is not None:
                by_product.setdefault(products_of(op.result, self.used)[0], []).append(source)
        if not by_product:
            return None
        groups: list[Group] = []
        for sources in by_product.values():
            for engine in ("tma", "cp.async"):
                same = tuple(s for s in sources if (s.descriptor >= 0) == (engine == "tma"))
                if same:
                    groups.append(Group(same, engine))
        return Stream(loop, tuple(groups), slots)

    def _source(self, load: BlockLoad, loop: For) -> StreamedBox | None:
        axis = contiguous_axis(load)
        elem = load.result.type.elem
        inside = set(loop.body.ops)
        products = products_of(load.result, self.used)
        if axis is None or len(load.shape) != 2 or not isinstance(elem, Scalar) or elem.bits not in (8, 16, 32):
            return None
        # What the kernel itself writes may be read again later: a copy ahead of its time would miss it.
        if None in self.written or self.arrays.accessed(load) in self.written | {None}:
            return None
        if load.padding != "zero" or not products or any(p not in inside for p in products):
            return None
        swizzle = widest_swizzle(load.shape[axis] * elem.bytes)
        if not swizzle:
            return None
        shared = shared_tensor_core(load.shape, elem.bits, swizzle, (axis, 1 - axis))
        tile = load.result.type.in_shared_memory(shared)
        descriptor = -1
        if "tma" in self.target.features:
            descriptor = self.descriptors.add(load, axis, swizzle, filled=_resting(load, axis, loop))
        width = copy_bytes(load, axis, self.facts)
        if descriptor < 0 and ("cp.async" not in self.target.features or width < _SMALLEST_COPY):
            return None
        return StreamedBox(load, tile, descriptor, width)


def _resting(load: BlockLoad, axis: int, loop: For) -> list[int]:
    """The axis other than ``axis``, the contiguous one, if the box does not move along it while ``loop`` runs.

    An array that ends inside such a box does so in every iteration, and the copy engine takes longer for rows that do
    not exist than for others: with one row in boxes of 64, 51 us where threads that leave them out take 43 (H200, bf16
    product 1x8192x8192, ``benchmarks/results/2026-11-22-h200-rows``).
    """
    lead = len(load.offsets) - len(load.shape)
    inside = {*loop.body.args, *(result for op in loop.body.ops for result in op.results)}
    return [a for a in range(len(load.shape)) if a != axis and load.offsets[lead + a] not in inside]


def copy_bytes(load: BlockLoad, axis: int, facts: AxisFacts) -> int:
    """The widest copy, 16 bytes at most, to which every row of the box is aligned."""
    pointee = load.base.type.elem
    size = pointee.pointee.bytes if isinstance(pointee, Pointer) else 1
    aligned = facts[load.base].divisibility[0]
    lead = len(load.strides) - len(load.shape)
    for place, (stride, offset) in enumerate(zip(load.strides, load.offsets, strict=True)):
        if place == lead + axis:
            aligned = min(aligned, facts[offset].divisibility[0] * size)
        else:
            aligned = min(aligned, facts[stride].divisibility[0] * size)
    return min(16, aligned & -aligned, load.shape[axis] * size)


def _innermost(block: Block) -> Iterator[For]:
    for op in block.ops:
        found = [loop for nested in op.blocks for loop in _innermost(nested)]
        yield from found
        if isinstance(op, For) and not found:
            yield op


def scalar_slice(loop: For, wanted: list[Value], arrays: Arrays, written: set[Value | None]) -> list[Op] | None:
    """The operations of the loop's body that ``wanted`` scalars are made of, in order.

    None if they are more than scalar code of the loop's index: of values that the loop carries, of tiles, or of numbers
    in memory that the function changes. Numbers in other arrays, such as a table of pages, are read ahead of time.
    """
    inside = set(loop.body.ops)
    needed: set[Op] = set()
    todo = list(wanted)
    while todo:
        value = todo.pop()
        op = value.op
        if op is None:
            if value in loop.body.args[1:]:
                return None
        elif op in inside and op not in needed:
            if (op.effect is not Effect.PURE and not _reads_steadily(op, arrays, written)) or op.blocks:
                return None
            if any(v.type.rank for v in (*op.operands, *op.results)):
                return None
            needed.add(op)
            todo += op.operands
    return [op for op in loop.body.ops if op in needed]


def _reads_steadily(op: Op, arrays: Arrays, written: set[Value | None]) -> bool:
    """Whether ``op`` reads what stays the same while the kernel runs, as far as the kernel itself writes it."""
    if not isinstance(op, Load) or op.volatile or None in written:
        return False
    array = arrays.of(op.pointer)
    return array not in written and (array is not None or not written)
