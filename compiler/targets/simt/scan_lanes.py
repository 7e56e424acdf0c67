"""How the lanes of a warp scan a row together."""

from __future__ import annotations

from collections.abc import Sequence

from ...hardware import LANES
from ...ir.types import Element
from ...tile.reduction import Scan
from .convert import shuffle_from
from .items import Item, combine
from .lowering import Lowering
from .registers import register_type


class Lanes:
    """The lanes that share a row: this thread's number among them, from 0 where the scan starts, and exchanges between
    them. They are ``count`` neighbouring bits of the lane's number, from ``step`` on."""

    def __init__(self, state: Lowering, op: Scan, count: int, step: int) -> None:
        self.state = state
        self.block = op.combine
        self.elements: list[Element] = [v.type.elem for v in op.inputs]
        self.count, self.step = count, step
        self.reverse = op.reverse
        self.lane = state.text.op(f"and i32 {state.thread}, {LANES - 1}")
        shifted = state.text.op(f"lshr i32 {state.thread}, {step.bit_length() - 1}")
        number = state.text.op(f"and i32 {shifted}, {count - 1}")
        self.number = state.text.op(f"sub i32 {count - 1}, {number}") if op.reverse else number

    def combine(self, earlier: Item, later: Item) -> Item:
        """The combining region applied to two items."""
        return combine(self.state, self.block, earlier, later)

    def choose(self, condition: str, yes: Item, no: Item) -> Item:
        """One of two items."""
        return tuple(
            self.state.text.op(f"select i1 {condition}, {register_type(e)} {a}, {register_type(e)} {b}")
            for a, b, e in zip(yes, no, self.elements, strict=True)
        )

    def at_least(self, number: int) -> str:
        """Whether this thread's number is ``number`` or more."""
        return self.state.text.op(f"icmp uge i32 {self.number}, {number}")

    def scan(self, items: Sequence[Item]) -> tuple[list[Item], Item]:
        """What each of this thread's ``items`` comes to with those before it in this thread; and all of them, with
        those of the lanes before."""
        own = [items[0]]
        for item in items[1:]:
            own.append(self.combine(own[-1], item))
        total = own[-1]
        distance = 1
        while distance < self.count:
            earlier = self.combine(self.before(total, distance), total)
            total = self.choose(self.at_least(distance), earlier, total)
            distance *= 2
        return own, total

    def follow(self, own: Sequence[Item], total: Item, carry: Item | None, carried: str | None = None) -> list[Item]:
        """The thread's part ``own`` with what comes before it: ``carry``, which exists where ``carried`` (None:
        everywhere), and the lanes before, by the ``total`` of each."""
        prefix, known = self._prefix(total, carry, carried)
        if prefix is None:
            return list(own)
        after = [self.combine(prefix, item) for item in own]
        if known is None:
            return after
        return [self.choose(known, new, old) for new, old in zip(after, own, strict=True)]

    def before(self, item: Item, distance: int) -> Item:
        """The item of the lane ``distance`` earlier in scan order; anything where there is none."""
        step = self.step * (distance if self.reverse else -distance)
        source = self.state.text.op(f"add i32 {self.lane}, {step}")
        return self._from(item, source)

    def of_last(self, item: Item) -> Item:
        """The item of the lane with which the scan ends."""
        if self.count == 1:
            return item
        first = self.state.text.op(f"and i32 {self.lane}, {LANES - 1 - self.step * (self.count - 1)}")
        end = 0 if self.reverse else self.step * (self.count - 1)
        return self._from(item, self.state.text.op(f"or i32 {first}, {end}"))

    def of(self, item: Item, number: str) -> Item:
        """The item of the lane with this number (i32)."""
        text = self.state.text
        place = text.op(f"sub i32 {self.count - 1}, {number}") if self.reverse else number
        first = text.op(f"and i32 {self.lane}, {LANES - 1 - self.step * (self.count - 1)}")
        offset = text.op(f"mul i32 {place}, {self.step}")
        return self._from(item, text.op(f"or i32 {first}, {offset}"))

    def _prefix(self, total: Item, carry: Item | None, carried: str | None) -> tuple[Item | None, str | None]:
        """What comes before this thread's elements, and where that exists (None: everywhere)."""
        if self.count == 1:
            return carry, carried
        before = self.before(total, 1)
        some = self.at_least(1)
        if carry is None:
            return before, some
        after = self.combine(carry, before)
        if carried is None:
            return self.choose(some, after, carry), None
        after = self.choose(carried, after, before)
        return self.choose(some, after, carry), self.state.text.op(f"or i1 {some}, {carried}")

    def _from(self, item: Item, lane: str) -> Item:
        return tuple(
            shuffle_from(self.state, value, elem, lane) for value, elem in zip(item, self.elements, strict=True)
        )
