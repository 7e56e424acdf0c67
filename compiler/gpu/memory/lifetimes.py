"""Liveness of what is in shared memory, and places that those share which are never needed at once.

Time is program order: an operation in a loop happens throughout the outermost loop around it, for the loop comes round.
A ring is needed from the function's beginning, where a producer begins to fill it, until the last loop that is fed from
it is over. Then it is idle: as many slots were filled as were read (see :mod:`..streams.multistage` and
:mod:`..streams.roles`), so no copy is under way, and each thread has waited for the products that read it. Other
threads may still read; the barriers of :mod:`.barriers` keep them apart from what comes to lie there. The copy engine
wrote the ring, but it never does again, and whoever has seen its copies land may write there without a proxy fence (PTX
ISA, "Async proxy").
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Block, Function, Op, uses
from ...tile.control import For, While
from ..asynchronous import Await, Wgmma, added_up, awaited, readers_of


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes ``start`` to ``end`` (exclusive) of shared memory."""

    start: int
    end: int

    def overlaps(self, other: ByteRange) -> bool:
        """Whether the two share a byte."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Lifetime:
    """From the first operation that needs memory to the last, by their numbers in program order."""

    begin: int
    end: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are needed at some time."""
        return self.begin <= other.end and other.begin <= self.end


class Lifetimes:
    """The lifetimes of what one function has in shared memory."""

    def __init__(self, function: Function) -> None:
        self._used = uses(function)
        self._span: dict[Op, tuple[int, int]] = {}
        self._parent: dict[Op, Op | None] = {}
        self._number(function.body, None, 0)
        self._waits: dict[Wgmma, list[Op]] = {}
        for op in self._span:
            for product in awaited(op.x) if isinstance(op, Await) else added_up(op):
                self._waits.setdefault(product, []).append(op)

    @property
    def whole(self) -> Lifetime:
        """From the function's beginning to its end."""
        return Lifetime(0, len(self._span))

    def of(self, op: Op) -> Lifetime:
        """How long the tile or the ring that ``op`` makes is needed: what a loop reads, until that loop ends; what a
        product reads, until it is waited for."""
        begin, around = self._span[op][0], self._parent[op]
        readers = readers_of(op.result, self._used)
        waits = [wait for reader in readers if isinstance(reader, Wgmma) for wait in self._waits.get(reader, ())]
        ends = (self._span[self._loop(reader, around)][1] for reader in (*readers, *waits))
        return Lifetime(begin, max([begin, *ends]))

    def during(self, op: Op) -> Lifetime:
        """While ``op`` runs: all the time that the loops around it take."""
        return Lifetime(*self._span[self._loop(op, None)])

    def since(self, op: Op) -> Lifetime:
        """From ``op``, or the loops around it, to the function's end."""
        return Lifetime(self.during(op).begin, len(self._span))

    def comes_round(self, op: Op) -> bool:
        """Whether ``op`` is in a loop."""
        return self._loop(op, None) is not op

    def _number(self, block: Block, parent: Op | None, count: int) -> int:
        for op in block.ops:
            begin = count
            count += 1
            self._parent[op] = parent
            for nested in op.blocks:
                count = self._number(nested, op, count)
            self._span[op] = begin, count - 1
        return count

    def _loop(self, op: Op, around: Op | None) -> Op:
        """The outermost loop around ``op`` that is inside ``around``; ``op`` where there is none."""
        widest = op
        while (parent := self._parent[op]) is not around and parent is not None:
            op = parent
            if isinstance(op, For | While):
                widest = op
        return widest


class TakenBytes:
    """Which bytes are taken, and how long."""

    def __init__(self) -> None:
        self._taken: list[tuple[ByteRange, Lifetime]] = []

    @property
    def end(self) -> int:
        """Behind the last byte that is ever taken."""
        return max((place.end for place, _ in self._taken), default=0)

    def take(self, place: ByteRange, lifetime: Lifetime) -> None:
        """What is needed at the same time lies elsewhere."""
        self._taken.append((place, lifetime))

    def lowest(self, size: int, lifetime: Lifetime, alignment: int, first: int = 0) -> ByteRange:
        """The first of ``size`` bytes from byte ``first`` on that nobody needs at the same time."""
        start = -(-first // alignment) * alignment
        busy = [place for place, other in self._taken if other.meets(lifetime)]
        for place in sorted(busy, key=lambda place: place.start):
            if start + size <= place.start:
                break
            start = max(start, -(-place.end // alignment) * alignment)
        return ByteRange(start, start + size)
