"""Async waits: products of warp groups go on while other work is done, up to where each one is waited for.

wgmma is asynchronous: its accumulators, and the memory that it reads, are its own until a wait. A wait stands as late
as possible: before the first operation that needs the result, before memory is written that a product in flight may
read, and at the end of a block, unless the next iteration adds to its sums (:mod:`.carried`). Slots are released after
the wait for the products that read them. Products end in the order in which they were begun, so a wait says how many of
the later ones may go on.

Where products follow each other, such as those of the parts of a state with rows of a sequence, their operands are
written before the first one, as far as they are small: it need not be waited for then. Scratch lies beside what
products in flight read (:mod:`..memory.lifetimes`), which need not be waited for either. Both take more shared memory;
where there is none left, products are waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...ir.core import Block, Effect, Function, Op, Value, uses
from ...tile.control import For, If, While, Yield, handed_on
from ...tile.memory import Store
from ..asynchronous import (
    Acquire,
    Advance,
    Await,
    Commit,
    Deposit,
    Fetch,
    FetchTile,
    Pipe,
    Receive,
    Release,
    SharedView,
    Slot,
    Vacate,
    Wgmma,
    slot_of,
)
from ..memory.fences import read_by_products
from ..memory.scratch import is_round_trip, scratch_bytes, tile_bytes
from ..ops import ConvertLayout
from .carried import may_go_on, settle_early
from .operand_writes import writes_tile

#: Bytes of operands that are written before they are needed.
MOST_EARLY_BYTES = 16 * 1024


def let_fly(function: Function, *, spare_waits: bool = True) -> bool:
    """Put the waits of ``function`` where they are needed, in place. Whether some are spared at the cost of shared
    memory; only if ``spare_waits``."""
    used = uses(function)
    replaced: dict[Value, Value] = {}
    takes_room = False
    for block, around, in_loop in list(_blocks(function.body, None, False)):
        if any(isinstance(op, Wgmma) for op in block.ops):
            takes_room |= spare_waits and _bring_operands(block)
            flight = _Flight(block, spare_waits or in_loop, used, replaced)
            flight.run(may_go_on(around, used) if around is not None else frozenset())
            takes_room |= spare_waits and not in_loop and flight.takes_room
            if around is not None and flight.flying:
                flight.go_on(around, function.body.holder_of(around))
    for op in function.body.walk():
        if not isinstance(op, Await):
            op.replace_operands(replaced)
    return takes_room


def _blocks(block: Block, around: For | None, in_loop: bool) -> Iterator[tuple[Block, For | None, bool]]:
    """A block and those inside it, the loop that each is the body of, and whether it is in any."""
    yield block, around, in_loop
    for op in block.ops:
        for inner in op.blocks:
            yield from _blocks(inner, op if isinstance(op, For) else None, in_loop or isinstance(op, For | While))


def _bring_operands(block: Block) -> bool:
    """Write tiles to shared memory before the products that are under way when they are written; threads wait once for
    those that follow each other. Whether there are any."""
    early = False
    out: list[Op] = []
    made: set[Value] = set()  # since the first of the products that may be under way
    flying: set[Value] = set()
    first, left = 0, MOST_EARLY_BYTES
    for op in block.ops:
        if isinstance(op, Wgmma):
            if not flying:
                first, left, made = len(out), MOST_EARLY_BYTES, set()
            flying.add(op.result)
        elif flying & op.reads:
            flying.clear()
        size = tile_bytes(op) if isinstance(op, ConvertLayout) else 0
        if flying and 0 < size <= left and not made & op.reads:
            out.insert(first, op)
            first, left, early = first + 1, left - size, True
        else:
            out.append(op)
            made.update(op.results)
    for number, op in enumerate(out):
        if isinstance(op, ConvertLayout) and writes_tile(op):
            finisher = _finisher(out[number + 1 :])
            op.unfinished = finisher is not None
            op.unfenced = finisher is not None and writes_tile(finisher)
    block.ops = out
    return early


def _finisher(following: Sequence[Op]) -> ConvertLayout | None:
    """The conversion of another tile that goes to shared memory before anyone reads any: threads then wait for each
    other once. None where there is none."""
    for op in following:
        if isinstance(op, ConvertLayout) and (writes_tile(op) or is_round_trip(op)):
            return op
        if op.effect not in (Effect.PURE, Effect.READ) or any(value.type.shared is not None for value in op.reads):
            return None
    return None


#: What fills another slot of a ring than those that products read (:mod:`..streams.multistage`). Threads that copy for
#: themselves acquire it without waiting for anybody.
_FETCHING = (Acquire, Fetch, FetchTile, Advance, Yield)


@dataclass
class _Product:
    """A product in flight, those before it that it adds to, and the releases of slots that they read."""

    op: Wgmma
    addends: list[Wgmma] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)

    @property
    def operands(self) -> Iterator[Value]:
        """What it may still read."""
        return (value for op in (*self.addends, self.op) for value in (op.a, op.b))


class _Flight:
    def __init__(
        self, block: Block, scratch_beside: bool, used: dict[Value, list[Op]], replaced: dict[Value, Value]
    ) -> None:
        self.block = block
        self.scratch_beside = scratch_beside
        self.takes_room = False
        self.used = used
        self.replaced = replaced
        self.flying: list[_Product] = []
        self.out: list[Op] = []

    def run(self, going_on: frozenset[Value]) -> None:
        """``going_on``: results of products that need not be done at the end of the block; ``flying`` has them then."""
        for op in self.block.ops:
            if isinstance(op, Release) and (reader := self._last_reader(op)) is not None:
                reader.releases.append(op)
                continue
            if isinstance(op, Yield) and going_on:
                self._end(going_on)
            elif not isinstance(op, Release):
                self._settle(self._needed(op))
            self.out.append(op)
            if isinstance(op, Wgmma):
                self._begin(op)
        self.block.ops = self.out

    def _end(self, going_on: frozenset[Value]) -> None:
        """Wait for all products but the last ones, as many as may go on."""
        stay = len(self.flying)
        while stay and self.flying[stay - 1].op.result in going_on:
            stay -= 1
        self._settle(stay)
        for product in self.flying:
            product.op.waits = False
            self.out += product.releases

    def go_on(self, loop: For, outside: Block) -> None:
        """Let the products still in flight go on into the next iteration of ``loop``, whose body this is, up to where
        what they read may be written, and wait for the last iteration's behind the loop, which is ``outside``."""
        self.flying, last = [], self.flying
        settle_early(loop, self._may_write_operands)
        results = handed_on(loop.body)
        for number, product in enumerate(last):
            result = loop.results[results.index(product.op.result)]
            wait = Await(result, len(last) - 1 - number)
            wait.location = product.op.location
            self.replaced[result] = wait.result
            outside.ops.insert(outside.ops.index(loop) + 1 + number, wait)

    def _begin(self, op: Wgmma) -> None:
        """One product more. What it adds to needs no wait of its own: sums of instructions of one shape are added up in
        their order (PTX ISA, "Register fragments and shared memory accesses")."""
        product = _Product(op)
        addend = self._addend(op)
        if addend is not None:
            self.flying.remove(addend)
            addend.op.waits = False
            product.addends = [*addend.addends, addend.op]
            product.releases = addend.releases
        self.flying.append(product)

    def _addend(self, op: Op) -> _Product | None:
        """The product in flight that ``op`` is a product to be added to, by instructions of the same shape, and that
        nobody else needs."""
        if not isinstance(op, Wgmma) or len(self.used[op.acc]) > 1:
            return None
        shape = op.columns, op.a.type.elem.bytes
        flying = (product for product in self.flying if product.op.result is op.acc)
        return next((p for p in flying if (p.op.columns, p.op.a.type.elem.bytes) == shape), None)

    def _needed(self, op: Op) -> int:
        """How many of the products in flight have to be done before ``op``."""
        if self._may_write_operands(op):
            return len(self.flying)
        read = op.reads - ({op.acc} if isinstance(op, Wgmma) and self._addend(op) is not None else set())
        return max((i + 1 for i, product in enumerate(self.flying) if product.op.result in read), default=0)

    def _may_write_operands(self, op: Op) -> bool:
        """Whether ``op`` may write where products in flight read, or keep slots from being filled again. Scratch in a
        loop lies beside all tiles of the loop anyway (:meth:`..memory.lifetimes.Lifetimes.during`), but threads wait
        for each other there: slots that a product has read are released first, for a producer waits for them. Causal
        gradients of attention take 2 % longer without that (benchmarks/results/2026-11-27-h100-states)."""
        if isinstance(op, Receive | Slot | SharedView | Wgmma | Commit | Store | Deposit | Advance | Vacate):
            return False
        if isinstance(op, If):
            inside = (inner for block in op.blocks for inner in block.walk())
            return any(not isinstance(inner, _FETCHING) and self._may_write_operands(inner) for inner in inside)
        if op.effect not in (Effect.PURE, Effect.READ) or tile_bytes(op):
            return True
        has_scratch = bool(scratch_bytes(op, self.used))
        self.takes_room |= has_scratch and bool(self.flying)
        return has_scratch and (not self.scratch_beside or any(product.releases for product in self.flying))

    def _last_reader(self, release: Release) -> _Product | None:
        """The last product in flight that reads a slot of the pipe; the last one at all where threads, too, read the
        slots and nobody waits for their release, which is a fence then (:mod:`..memory.fences`). It may as well stand
        behind the wait, and has to: ptxas 12.8 and 12.9 die of a proxy fence between a product in a loop and the wait
        for it, unless a barrier or an arrival follows the fence."""
        if _has_no_arrival(release) and not all(read_by_products(release, self.used)):
            return self.flying[-1] if self.flying else None
        slots = ((product, slot_of(v)) for product in self.flying for v in product.operands)
        reading = [product for product, slot in slots if slot is not None and slot.pipe is release.pipe]
        return reading[-1] if reading else None

    def _settle(self, count: int) -> None:
        """Wait for the first ``count`` products in flight."""
        for product in self.flying[:count]:
            self.flying = self.flying[1:]
            if self.out[-1] is not product.op:
                product.op.waits = False
                wait = Await(product.op.result, len(self.flying))
                wait.location = product.op.location
                self.replaced[product.op.result] = wait.result
                self.out.append(wait)
            self.out += product.releases


def _has_no_arrival(release: Release) -> bool:
    """Whether nobody waits for ``release`` of a slot that the copy engine fills."""
    pipe = release.pipe.op
    return isinstance(pipe, Pipe) and pipe.engine == "tma" and not pipe.readers
