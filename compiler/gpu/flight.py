"""Products of warp groups that are under way while other work is done: where each one is waited for.

wgmma is asynchronous: its accumulators, and the memory that it reads, are its own until a wait. A wait stands as late
as possible: before the first operation that needs the result, before memory is written that a product in flight may
read, and at the end of a block. Slots are released after the wait for the products that read them. Products end in the
order in which they were begun, so a wait says how many of the later ones may go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.core import Block, Effect, Function, Op, Value, uses
from ..tile.control import If, Yield
from .asynchronous import (
    Advance,
    Await,
    Commit,
    Fetch,
    FetchTile,
    Receive,
    Release,
    SharedView,
    Slot,
    Wgmma,
    slot_of,
)
from .ops import ConvertLayout
from .scratch import scratch_bytes


def let_fly(function: Function) -> None:
    """Put the waits of ``function`` where they are needed, in place."""
    used = uses(function)
    replaced: dict[Value, Value] = {}
    for block in list(function.body.nest()):
        if any(isinstance(op, Wgmma) for op in block.ops):
            _Flight(block, used, replaced).run()
    for op in function.body.walk():
        if not isinstance(op, Await):
            op.map_operands(lambda v: replaced.get(v, v))


#: What fills another slot of a ring than those that products read (:mod:`.multistage`).
_FETCHING = (Fetch, FetchTile, Advance, Yield)


@dataclass
class _Product:
    """A product in flight, and the releases of slots that it reads."""

    op: Wgmma
    releases: list[Release] = field(default_factory=list)


class _Flight:
    def __init__(self, block: Block, used: dict[Value, list[Op]], replaced: dict[Value, Value]) -> None:
        self.block = block
        self.used = used
        self.replaced = replaced
        self.flying: list[_Product] = []
        self.out: list[Op] = []

    def run(self) -> None:
        for op in self.block.ops:
            if isinstance(op, Release) and (reader := self._last_reader(op)) is not None:
                reader.releases.append(op)
                continue
            self._settle(self._needed(op))
            self.out.append(op)
            if isinstance(op, Wgmma):
                self.flying.append(_Product(op))
        self.block.ops = self.out

    def _needed(self, op: Op) -> int:
        """How many of the products in flight have to be done before ``op``."""
        if self._writes_shared_memory(op):
            return len(self.flying)
        read = op.reads
        return max((i + 1 for i, product in enumerate(self.flying) if product.op.result in read), default=0)

    def _writes_shared_memory(self, op: Op) -> bool:
        if isinstance(op, Receive | Slot | SharedView | Wgmma | Commit):
            return False
        if isinstance(op, If):
            inside = (inner for block in op.blocks for inner in block.walk())
            return any(not isinstance(inner, _FETCHING) and self._writes_shared_memory(inner) for inner in inside)
        if isinstance(op, ConvertLayout) and op.to.shared is not None:
            return True
        return op.effect not in (Effect.PURE, Effect.READ) or bool(scratch_bytes(op, self.used))

    def _last_reader(self, release: Release) -> _Product | None:
        """The last product in flight that reads a slot of the pipe."""
        slots = ((product, slot_of(v)) for product in self.flying for v in (product.op.a, product.op.b))
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
