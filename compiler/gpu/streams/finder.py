"""Which loops bring tiles from memory to matrix products, and in what form.

A loop is streamed if its body reads tiles that end in a product. What decides where they lie runs ahead of the products
(:mod:`.ahead`): in the same threads (:mod:`.multistage`), or, where it is scalar code because all tiles are boxes of
arrays (``block_load``), in a warp group of its own (:mod:`.roles`). Tiles that are no boxes, such as rows that a table
chooses, are copied by threads, each from where its pointer says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...hardware import threads_of
from ...ir.core import Block, Function, Op, Value, uses
from ...layout import widest_swizzle
from ...target import Target
from ...tile.assembly import EffectfulAssembly
from ...tile.axis import AxisFacts
from ...tile.blocks import BlockLoad
from ...tile.control import For
from ...tile.elementwise import Constant
from ...tile.matmul import Dot
from ...tile.memory import AtomicCAS, AtomicRMW, Barrier, GridWait, Load
from ...tile.shape import Broadcast, Join, Permute, Reshape, Split
from ..arrays import Arrays
from ..layouts.coalesce import access_of
from ..layouts.views import is_view, unpermuted
from .ahead import may_precede, run_ahead
from .boxes import contiguous_axis, copy_bytes, is_small, is_whole
from .descriptors import Descriptors
from .plan import Group, Stream, Streamed, StreamedBox, StreamedTile
from .rings import ring_tile

#: Bytes of a copy by a thread, at least (PTX ISA, "cp.async": 4, 8 or 16).
_SMALLEST_COPY = 4
#: Whose author asks for fewer slots than that wants no copies ahead. Where no more than one fits, it is still better
#: filled by copies than by way of registers.
FEWEST_SLOTS = 2
#: More slots where the product before still reads one when the operand of the next product is made. 4096^3 with int8
#: weights in tiles of 128 by 128 takes 540 us with two slots, 319 with three and 287 with four (one H200,
#: benchmarks/results/2026-11-28-h200-pairs/slots.txt).
SLOTS_IN_USE = 1
#: Bytes that the accesses have at least by which threads move small boxes; narrower ones are too many.
_LEAST_WIDTH = 8


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
            elif op.elementwise or isinstance(op, Permute | Broadcast | Join | Split | Reshape):
                for made in op.results:
                    if made not in seen:
                        follow(made)

    follow(value)
    return list(found)


class Finder:
    """Finds the streams of a function for one target. Rings have as many slots as the loop's author says, else
    ``slots``, and at most ``limit``; a loop for which fewer than two are asked is not streamed. ``of_warp_group``:
    whether a product is one of warp groups, whose tiles a group of their own brings."""

    def __init__(
        self,
        function: Function,
        facts: AxisFacts,
        target: Target,
        descriptors: Descriptors,
        slots: int,
        limit: int,
        of_warp_group: Callable[[Dot], bool],
    ) -> None:
        self.of_warp_group = of_warp_group
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
        if any(isinstance(op, GridWait) for op in loop.body.walk()):  # later iterations' tiles may not be there yet
            return None
        by_product: dict[Dot, list[Streamed]] = {}
        boxes = [op.result.type for op in loop.body.ops if isinstance(op, BlockLoad)]
        small = not self._feeds_warp_groups(loop) and all(is_small(box, self.function.warps) for box in boxes)
        for op in loop.body.ops:
            source = self._source(op, loop, small=small) if isinstance(op, BlockLoad | Load) else None
            if isinstance(op, BlockLoad | Load) and source is not None:
                by_product.setdefault(products_of(op.result, self.used)[0], []).append(source)
        if not by_product:
            return None
        prepared = slots >= FEWEST_SLOTS and self._is_prepared(loop, by_product)
        groups: list[Group] = []
        for product, sources in by_product.items():
            for engine in ("tma", "cp.async"):
                same = [s for s in sources if _by_engine(s) == (engine == "tma")]
                parts = _by_reader(same, product) if prepared else [same]
                groups += [Group(tuple(part), engine) for part in parts if part]
        return Stream(loop, tuple(groups), min(asked + SLOTS_IN_USE, self.limit) if prepared else slots)

    def _feeds_warp_groups(self, loop: For) -> bool:
        return any(map(self.of_warp_group, loop.body.ops_of(Dot)))

    def _is_prepared(self, loop: For, by_product: dict[Dot, list[Streamed]]) -> bool:
        """Whether threads make the right operand of the only product, one of warp groups that are added up, of what the
        copy engine brings: they do that under the product before (:mod:`..latency.rotation`)."""
        (product, sources), *more = by_product.items()
        brought = [s.load.result for s in sources]
        made = len(brought) > 1 and unpermuted(product.a) in brought and unpermuted(product.b) not in brought
        alone = not more and product.acc in loop.body.args and self.of_warp_group(product)
        return made and alone and all(map(_by_engine, sources))

    def _source(self, load: BlockLoad | Load, loop: For, *, small: bool) -> Streamed | None:
        products = products_of(load.result, self.used)
        inside = set(loop.body.ops)
        if load.result.type.rank != 2 or not products or any(p not in inside for p in products):
            return None
        if self._is_handed_on(load.result, loop):
            return None
        # What the loop itself writes may be read again later: a copy ahead of its time would miss it.
        array = self.arrays.accessed(load)
        written = self.arrays.written(loop.body)
        ahead = run_ahead(loop, load.operands, self.arrays)
        if not may_precede(array, written) or ahead is None:
            return None
        # What the kernel writes elsewhere may come from other programs, for which the loop waits.
        read = {array, *(self.arrays.of(op.pointer) for op in ahead.fetching if isinstance(op, Load))}
        if not all(may_precede(a, self.written) for a in read) and any(map(_synchronises, loop.body.walk())):
            return None
        return self._box(load, loop, small=small) if isinstance(load, BlockLoad) else self._tile(load)

    def _box(self, load: BlockLoad, loop: For, *, small: bool) -> StreamedBox | None:
        axis = contiguous_axis(load)
        if axis is None or len(load.shape) != 2 or load.padding != "zero":
            return None
        tile = ring_tile(load.result.type, axis, by_threads=self._is_made_into_operands(load))
        if tile is None:
            return None
        descriptor = -1
        # A warp group that only copies is ahead of the whole loop, so of what other parts of the kernel write, too, and
        # the copy engine has a view of memory of its own (PTX ISA, "Async proxy").
        width = copy_bytes(load, axis, self.facts)
        by_threads = small and width >= _LEAST_WIDTH
        if "tma" in self.target.features and not by_threads and may_precede(self.arrays.accessed(load), self.written):
            swizzle = widest_swizzle(load.shape[axis] * tile.elem.bytes)
            filled, promised = _resting(load, axis, loop), self._feeds_warp_groups(loop)
            descriptor = self.descriptors.add(load, axis, swizzle, filled=filled, promised=promised)
        if descriptor < 0 and ("cp.async" not in self.target.features or width < _SMALLEST_COPY):
            return None
        return StreamedBox(load, tile, descriptor, width, is_whole(load, axis, self.facts, width))

    def _is_handed_on(self, value: Value, loop: For) -> bool:
        """Whether the next iteration gets ``value``, or a view of it, as it is: its slot is somebody else's by then."""
        seen = [value]
        for shown in seen:
            seen += [made for op in self.used.get(shown, ()) if is_view(op) for made in op.results]
        end = loop.body.terminator
        return end is not None and not end.reads.isdisjoint(seen)

    def _is_made_into_operands(self, load: BlockLoad | Load) -> bool:
        """Whether no product reads what is loaded as it is."""
        operands = {unpermuted(value) for p in products_of(load.result, self.used) for value in (p.a, p.b)}
        return load.result not in operands

    def _tile(self, load: Load) -> StreamedTile | None:
        access = access_of(load, self.facts)
        tile = ring_tile(load.result.type, access.axis, by_threads=self._is_made_into_operands(load))
        if tile is None or load.volatile or load.cache not in ("", ".ca", ".cg") or not _pads_with_zeros(load):
            return None
        threads = threads_of(self.function.warps)
        width = min(access.vector, tile.size // threads) * tile.elem.bytes
        if "cp.async" not in self.target.features or width < _SMALLEST_COPY:
            return None
        return StreamedTile(load, tile, access.axis, width)


def _synchronises(op: Op) -> bool:
    """Whether ``op`` may order this program's reads behind another one's writes."""
    if isinstance(op, Load):
        return op.is_awaited
    return isinstance(op, AtomicRMW | AtomicCAS | Barrier | EffectfulAssembly)


def _by_engine(source: Streamed) -> bool:
    """Whether the copy engine brings it."""
    return isinstance(source, StreamedBox) and source.descriptor >= 0


def _by_reader(sources: list[Streamed], product: Dot) -> list[list[Streamed]]:
    """What ``product`` reads itself, and what threads read, which is received and released earlier."""
    read = [s for s in sources if s.load.result is unpermuted(product.a)]
    return [read, [s for s in sources if s not in read]]


def _pads_with_zeros(load: Load) -> bool:
    """Whether elements that are masked off are zeros, or may be."""
    other = load.other.op if load.other is not None else None
    return load.other is None or (isinstance(other, Constant) and other.value == 0 and str(other.value) != "-0.0")


def _resting(load: BlockLoad, axis: int, loop: For) -> list[int]:
    """The axis other than ``axis``, the contiguous one, if the box does not move along it while ``loop`` runs.

    An array that ends inside such a box does so in every iteration, and the copy engine takes longer for rows that do
    not exist than for others: with one row in boxes of 64, 51 us where threads that leave them out take 43 (H200, bf16
    product 1x8192x8192, ``benchmarks/results/2026-11-22-h200-rows``).
    """
    lead = len(load.offsets) - len(load.shape)
    inside = {*loop.body.args, *(result for op in loop.body.ops for result in op.results)}
    return [a for a in range(len(load.shape)) if a != axis and load.offsets[lead + a] not in inside]


def _innermost(block: Block) -> Iterator[For]:
    for op in block.ops:
        found = [loop for nested in op.blocks for loop in _innermost(nested)]
        yield from found
        if isinstance(op, For) and not found:
            yield op
