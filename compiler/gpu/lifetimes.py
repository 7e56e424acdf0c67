"""How long tiles in shared memory are needed, and places that those share which are never needed at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.core import Block, Function, Op, Value, uses
from .asynchronous import SharedView


@dataclass(frozen=True, slots=True)
class Lifetime:
    """From the operation that makes a tile to the last that reads it, by their numbers in program order."""

    begin: int
    end: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both tiles are needed at some time."""
        return self.begin <= other.end and other.begin <= self.end


class Lifetimes:
    """The lifetimes of tiles of one function. A tile that a loop reads is needed until the loop ends."""

    def __init__(self, function: Function) -> None:
        self._used = uses(function)
        self._span: dict[Op, tuple[int, int]] = {}
        self._parent: dict[Op, Op | None] = {}
        self._number(function.body, None, 0)

    def of(self, op: Op) -> Lifetime:
        """How long the result of ``op`` is needed."""
        begin = self._span[op][0]
        return Lifetime(begin, max([begin, *(self._end(op, reader) for reader in self._readers(op.result))]))

    def _number(self, block: Block, parent: Op | None, count: int) -> int:
        for op in block.ops:
            begin = count
            count += 1
            self._parent[op] = parent
            for nested in op.blocks:
                count = self._number(nested, op, count)
            self._span[op] = begin, count - 1
        return count

    def _readers(self, value: Value) -> list[Op]:
        found: list[Op] = []
        for op in self._used.get(value, ()):
            found.append(op)
            if isinstance(op, SharedView):
                found += self._readers(op.result)
        return found

    def _end(self, maker: Op, reader: Op) -> int:
        """When ``reader``, or the loop around it that does not make the tile itself, is over."""
        around = self._parent[maker]
        while (parent := self._parent[reader]) is not around and parent is not None:
            reader = parent
        return self._span[reader][1]


def share_places(needs: Mapping[Op, int], lifetimes: Lifetimes, first: int, alignment: int) -> dict[Op, int]:
    """The first byte of the tile of each operation, from byte ``first`` on; ``needs``: its bytes.

    Large tiles are placed first, each as low as those that are needed at the same time allow.
    """
    placed: dict[Op, int] = {}
    for op in sorted(needs, key=lambda o: -needs[o]):
        own = lifetimes.of(op)
        taken = sorted((placed[o], placed[o] + needs[o]) for o in placed if lifetimes.of(o).meets(own))
        place = first
        for begin, end in taken:
            if place + needs[op] <= begin:
                break
            place = max(place, -(-end // alignment) * alignment)
        placed[op] = place
    return placed
