"""Layout assignment: where values that exist once live; :mod:`.costs` says which others are made on demand.

Tiles that meet in elementwise operations, in loop-carried positions or in the branches of an ``if`` form a family, and
a family has one layout: the tensor core's if a dot accumulates in it, else the one that its memory accesses want, else
what a product takes of what a ring holds, else what its reductions leave behind, else what reads shared memory in
vectors, else a default. Pointer tiles carried by a loop belong to the family of what is loaded through them, so
pointers are never converted. A short row that is read to be spread over tiles is read as these need it, also where
addresses are made of it first, unless a loop carries it and spreads it only when it has ended; a longer one, beside
products that rings feed, by each warp as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from ...hardware import LANES, REGISTER_BITS, WARPS_PER_GROUP
from ...ir.core import Block, Function, Op, Value
from ...ir.types import Tile
from ...layout import (
    LinearLayout,
    coalesced_vectors,
    contiguous_registers,
    slice_layout,
    splittable_layout,
)
from ...options import Schedule
from ...target import Target
from ...tile.assembly import InlineAssembly
from ...tile.axis import AxisFacts
from ...tile.control import For, If, While
from ...tile.map import MapElementwise
from ...tile.matmul import Dot
from ...tile.memory import AtomicCAS, AtomicRMW, Load, Store
from ...tile.movement import Gather
from ...tile.reduction import Reduce, Scan
from ...tile.shape import Broadcast, ExpandDims, Split
from ..asynchronous import Deposit, FetchTile, Pipe, Slot
from .coalesce import Access, MemoryOp, access_of, default_layout, merge, order_in_shared_memory, order_of_fetch
from .costs import Costs
from .fitting import ALIKE
from .reduction import bits_of
from .ring_reads import RingRead, Taken, layout_as_taken, ring_read, taken_by
from .scan import scan_layout
from .tensorcore import accumulator_layout
from .views import is_view, operand_layout, result_layout

#: Most elements of a row that each thread reads by itself, where it would otherwise be read in vectors and converted:
#: their addresses are kept, and a conversion takes a shuffle and three selections for each, or goes through shared
#: memory. Beside products, which need registers, fewer.
MOST_OF_A_ROW = 8
MOST_BESIDE_PRODUCTS = 4
#: Registers of a row that is read in so few vectors, at most: 32 scales in f16 of which each thread wants 16 neighbours
#: are two loads in place of 16 shuffles (0.79 of the time of a product of packed numbers and few rows: an H200,
#: benchmarks/results/2026-11-30-h200-made, awq.txt).
MOST_REGISTERS_OF_A_ROW = 8


@dataclass(eq=False)
class Family:
    """Tiles that share a layout, and who has a wish about it."""

    accumulator: LinearLayout | None = None
    accesses: list[Access] = field(default_factory=list)
    derived: list[Value] = field(default_factory=list)  # made by reductions and views
    stores: list[Access] = field(default_factory=list)
    slots: list[Access] = field(default_factory=list)
    ring_reads: list[RingRead] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)  # by products of the loops in which slots are read
    reduced: set[int] = field(default_factory=set)  # axes along which a member is reduced
    scanned: set[int] = field(default_factory=set)
    #: Where members that are rows are spread over tiles: the view of one, and what an operation makes of it.
    spread: list[tuple[Value, Value]] = field(default_factory=list)
    loops: list[For | While] = field(default_factory=list)  # that carry members
    layout: LinearLayout | None = None
    resolving: bool = False

    @property
    def is_read(self) -> bool:
        """Whether members come from memory, or are made of such rows."""
        return bool(self.accesses or self.derived) and all(is_view(value.op) for value in self.derived)

    def read_from(self, read: RingRead, tile: Tile) -> None:
        """A member is ``tile`` where a ring holds it."""
        self.slots.append(order_in_shared_memory(tile, read.place))
        self.ring_reads.append(read)

    def absorb(self, other: Family) -> None:
        """Take over the members' wishes of ``other``."""
        self.accumulator = self.accumulator or other.accumulator
        self.accesses += other.accesses
        self.derived += other.derived
        self.stores += other.stores
        self.slots += other.slots
        self.ring_reads += other.ring_reads
        self.taken += other.taken
        self.reduced |= other.reduced
        self.scanned |= other.scanned
        self.spread += other.spread
        self.loops += other.loops


def _is_index_row(value: Value) -> bool:
    """Whether ``value`` is a row, whatever its rank, of what addresses are made of."""
    return not value.type.is_float and sum(size > 1 for size in value.type.shape) == 1


def _is_read_at_once(layout: LinearLayout, row: Family, most: int) -> bool:
    """Whether each thread reads its elements of a ``row`` by ``most`` accesses or fewer, one or a vector each."""
    view, _ = row.spread[0]
    held = 1 << sum(map(any, layout.register))
    axis = max(range(layout.rank), key=layout.shape.__getitem__)
    vector = min(contiguous_registers(layout, axis), max((access.vector for access in row.accesses), default=1))
    words = held * bits_of(view.type) // REGISTER_BITS
    return held <= most or (held // vector <= most and words <= MOST_REGISTERS_OF_A_ROW)


def _whole_in_warps(shape: tuple[int, ...], warps: int) -> LinearLayout | None:
    """Each warp has all of a row, each lane neighbours; None for rows of too few or too many elements: 32 shuffles are
    not worth it where one group of warps multiplies (benchmarks/results/2026-11-29-h200-turns, pairs-products.json:
    fp8_block_mm)."""
    size, most = max(shape), MOST_BESIDE_PRODUCTS // (1 if warps > WARPS_PER_GROUP else 2)
    if prod(shape) != size or not LANES <= size <= most * LANES:
        return None
    axis = shape.index(size)
    return coalesced_vectors(shape, warps, size // LANES, (axis, *(a for a in range(len(shape)) if a != axis)))


class Homes:
    """Finds the families of a function, and their layouts on demand."""

    def __init__(self, function: Function, facts: AxisFacts, costs: Costs, target: Target, schedule: Schedule) -> None:
        self.facts = facts
        self.costs = costs
        self.target = target
        self.schedule = schedule
        self.warps = schedule.num_warps
        self._parent: dict[Value, Value] = {}
        self._families: dict[Value, Family] = {}
        self._loops = 0  # around what is visited
        self._fed = bool(function.ops_of(Pipe))  # from rings, which copies fill ahead of products
        self._visit_all(function.body)

    # Building families ---------------------------------------------------------------------------------------

    def _root(self, value: Value) -> Value:
        parent = self._parent
        while (up := parent.setdefault(value, value)) is not value:
            parent[value] = parent[up]
            value = up
        return value

    def family(self, value: Value) -> Family:
        """The family of a tile that exists once."""
        return self._families.setdefault(self._root(value), Family())

    def _unite(self, *values: Value | None) -> None:
        tiles = [v for v in values if v is not None and self.costs.exists_once(v)]
        for other in tiles[1:]:
            a, b = self._root(tiles[0]), self._root(other)
            if a is not b:
                family = self.family(tiles[0])
                if (absorbed := self._families.pop(b, None)) is not None:
                    family.absorb(absorbed)
                self._parent[b] = a

    def _visit_all(self, block: Block) -> None:
        for op in block.ops:
            self._visit(op)
            self._loops += (inside := isinstance(op, For | While))
            for inner in op.blocks:
                self._visit_all(inner)
            self._loops -= inside

    def _access(self, op: MemoryOp) -> Access:
        """The access pattern of ``op``. What a store writes can be torn unless data says where it goes."""
        access = access_of(op, self.facts)
        known = not access.scattered or self.costs.cheap(op.pointer)
        return replace(access, loops=self._loops, tears=known and isinstance(op, Store))

    def _visit(self, op: Op) -> None:
        match op:
            case Load() if op.pointer.type.rank:
                self._unite(op.result, op.pointer, op.mask)
                self.family(op.result).accesses.append(self._access(op))
                if op.mask is not None and is_view(op.mask.op):
                    self._spread(op.mask, op.result)
            case FetchTile():
                self._unite(op.pointer, op.mask)
                if self.costs.exists_once(op.pointer):
                    self.family(op.pointer).accesses.append(order_of_fetch(op))
            case Slot() if (read := ring_read(op.result, self._loops)) is not None:
                self.family(op.result).read_from(read, op.result.type)
            case Deposit() if (place := op.ring.type.shared) is not None and self.costs.exists_once(op.value):
                written = order_in_shared_memory(op.value.type, place)
                self.family(op.value).slots.append(replace(written, tears=True))  # into banks that others write at once
            case Store() if op.pointer.type.rank:
                self._visit_store(op)
            case AtomicRMW() | AtomicCAS() if op.pointer.type.rank:
                self._unite(op.pointer, op.result)
                self.family(op.result).stores.append(self._access(op))
            case Dot():
                self._unite(op.acc, op.result)
                family = self.family(op.result)
                family.accumulator = family.accumulator or accumulator_layout(op, self.target, self.schedule)
                for operand, taken in taken_by(op, self._loops, self.target, self.schedule).items():
                    if self.costs.exists_once(operand):
                        self.family(operand).taken.append(taken)
            case Reduce() | Scan():
                self._unite(*op.inputs)
                self._unite(*op.results)
                self._combined(op)
                for result in op.results:
                    if result.type.rank:
                        self.family(result).derived.append(result)
            case MapElementwise() | InlineAssembly():
                self._unite(*op.results, *op.inputs)
            case Gather():
                self._unite(op.result, op.index)
            case For() | If() | While():
                self._visit_control(op)
            case _ if (op.elementwise or type(op) in ALIKE) and op.results[0].type.rank:
                self._unite(*op.results, *op.operands)
                if self.costs.exists_once(op.result):
                    views = [v for v in op.operands if is_view(v.op) and not self.costs.cheap(v)]
                    for view in views:
                        self._visit_view(view, op.result)

    def _visit_view(self, view: Value, made: Value) -> None:
        if (read := ring_read(view, self._loops)) is not None:
            self.family(made).read_from(read, view.type)
            return
        self.family(made).derived.append(view)
        self._spread(view, made)

    def _spread(self, view: Value, made: Value) -> None:
        source = view
        while isinstance(source.op, ExpandDims | Broadcast):
            source = source.op.operands[0]
        if (source.type.rank == 1 or _is_index_row(source)) and self.costs.exists_once(source):
            self.family(source).spread.append((view, made))

    def _combined(self, op: Reduce | Scan) -> None:
        for source in op.inputs:
            if self.costs.exists_once(source):
                family = self.family(source)
                (family.reduced if isinstance(op, Reduce) else family.scanned).add(op.axis)

    def _visit_store(self, op: Store) -> None:
        access = self._access(op)
        if self.costs.exists_once(op.pointer):
            self.family(op.pointer).accesses.append(access)
        if self.costs.exists_once(op.value):
            self.family(op.value).stores.append(access)

    def _visit_control(self, op: For | If | While) -> None:
        for same in op.handed_together:
            # The result comes first, so that it exists even if all the others are cheap.
            self._unite(*same)
            if not isinstance(op, If) and self.costs.exists_once(same[0]):
                self.family(same[0]).loops.append(op)

    # Asking for layouts --------------------------------------------------------------------------------------

    def layout(self, value: Value) -> LinearLayout:
        """The home of a tile; for cheap ones and views, the layout to use when nobody asks for another."""
        if self.costs.exists_once(value):
            return self._resolve(value)
        op = value.op
        if op is not None and is_view(op) and not self.costs.cheap(value):
            forward = self._forward(op)
            if forward is not None:
                return forward
        return default_layout(value, self.warps)

    def _resolve(self, value: Value) -> LinearLayout:
        family = self.family(value)
        if family.layout is None:
            family.resolving = True
            family.layout = self._choose(family, value)
            family.resolving = False
        return family.layout

    def _choose(self, family: Family, value: Value) -> LinearLayout:
        if family.accumulator is not None:
            return family.accumulator
        shape = value.type.shape
        if family.is_read and not family.stores and (row := self._as_spread(family, shape)) is not None:
            return row
        if family.accesses:
            return self._merge(family, family.accesses + family.stores, shape)
        if (taken := self._as_taken(family, shape)) is not None:
            return taken
        for source in family.derived:
            layout = self._derive(source)
            if layout is not None:
                return layout
        if family.stores:
            return self._merge(family, family.stores, shape)
        if family.slots:
            return self._merge(family, family.slots, shape)
        return default_layout(value, self.warps)

    def _merge(self, family: Family, accesses: list[Access], shape: tuple[int, ...]) -> LinearLayout:
        return merge(accesses, shape, self.warps, family.reduced, family.scanned)

    def _as_taken(self, family: Family, shape: tuple[int, ...]) -> LinearLayout | None:
        """The layout in which a product takes what is made of slots, and of rows spread over it; None where it asks for
        none, or the tile comes from elsewhere, too."""
        from_rings = family.taken and len(family.ring_reads) == len(family.slots) > 0
        elsewhere = family.stores or family.scanned or not all(is_view(value.op) for value in family.derived)
        if not from_rings or elsewhere:
            return None
        vectors = self._merge(family, family.slots, shape)
        return layout_as_taken(family.ring_reads, family.taken, vectors)

    def _as_spread(self, family: Family, shape: tuple[int, ...]) -> LinearLayout | None:
        """The layout in which a row is spread over tiles without a conversion; None where these differ, where a thread
        would have many elements, or where a loop carries the row and spreads it only when it has ended: all turns would
        do the work of several threads in each. Of many elements beside products that rings feed each warp has the whole
        row: it shuffles them, and waits for no other one."""
        made_by = {made.op for _, made in family.spread}
        if any(made_by.isdisjoint(op for block in loop.blocks for op in block.walk()) for loop in family.loops):
            return None
        others = [self.family(made) for _, made in family.spread]
        if any(other.resolving for other in others):
            return None
        found = {self._before(view, self.layout(made)) for view, made in family.spread}
        beside_products = any(other.accumulator is not None or other.taken for other in others)
        if len(found) == 1:
            (layout,) = found
            most = MOST_BESIDE_PRODUCTS if beside_products else MOST_OF_A_ROW
            if _is_read_at_once(layout, family, most):
                return layout
        if found and beside_products and self._fed and not any(map(any, (w for f in found for w in f.warp))):
            return _whole_in_warps(shape, self.warps)
        return None

    def _before(self, view: Value, layout: LinearLayout) -> LinearLayout:
        """The layout of the row that ``view`` spreads, where the view has ``layout``."""
        while isinstance(view.op, ExpandDims | Broadcast):
            layout, view = operand_layout(view.op, layout), view.op.operands[0]
        return layout

    def _derive(self, source: Value) -> LinearLayout | None:
        op = source.op
        match op:
            case Scan():
                return scan_layout(source.type.shape, op.axis, self.warps, self._free_layout(op.inputs[0]))
            case Reduce():
                operand = self._free_layout(op.inputs[0])
                return None if operand is None else slice_layout(operand, op.axis)
            case _:
                return self._forward(op) if op is not None else None

    def _free_layout(self, value: Value) -> LinearLayout | None:
        """The layout of ``value``, None if asking would go round in a circle."""
        if self.costs.exists_once(value) and self.family(value).resolving:
            return None
        return self.layout(value)

    def _forward(self, op: Op) -> LinearLayout | None:
        """The layout of a view's result that needs no conversion of its operand."""
        source = op.operands[0]
        if not source.type.rank:
            return None
        layout = self._free_layout(source)
        if layout is None:
            return None
        if isinstance(op, Split):
            if not op.results[0].type.rank:
                return None
            layout = splittable_layout(layout)
        return result_layout(op, layout)
