"""Prefix scans: serial in a thread, by shuffles across lanes, with a carry from round to round."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UnsupportedOp
from ...gpu.layouts.reduction import ScanPlan, plan_scan
from ...ir.types import Element
from ...tile.reduction import Scan
from .convert import shuffle_from
from .lowering import Lowering, rule
from .reduction import Item, combine
from .registers import register_type


@rule(Scan)
def _scan(state: Lowering, op: Scan) -> None:
    layout = op.inputs[0].type.layout
    if layout is None:
        raise UnsupportedOp("a scan needs a layout", location=op.location)
    plan = plan_scan(layout, op.axis)
    inputs = [state.values[v] for v in op.inputs]
    names: list[list[str | None]] = [[None] * len(inputs[0]) for _ in inputs]
    lanes = _Lanes(state, plan, op)
    for row in plan.rows:
        carry: Item | None = None
        for registers in reversed(row) if op.reverse else row:
            ordered = registers[::-1] if op.reverse else registers
            items = [tuple(x[r] for x in inputs) for r in ordered]
            made, carry = lanes.round(items, carry)
            for register, item in zip(ordered, made, strict=True):
                for place, name in enumerate(item):
                    names[place][register] = name
    for place, result in enumerate(op.results):
        canonical = inputs[place].canonical
        state.define(result, [names[place][c] for c in canonical])


class _Lanes:
    """The lanes that share a row: this thread's number among them and exchanges between them."""

    def __init__(self, state: Lowering, plan: ScanPlan, op: Scan) -> None:
        self.state = state
        self.block = op.combine
        self.elements: list[Element] = [v.type.elem for v in op.inputs]
        self.count, self.step = plan.lanes, plan.step
        self.reverse = op.reverse
        self.lane = state.text.op(f"and i32 {state.thread}, 31")
        shifted = state.text.op(f"lshr i32 {state.thread}, {plan.step.bit_length() - 1}")
        number = state.text.op(f"and i32 {shifted}, {plan.lanes - 1}")
        # Counted from where the scan starts.
        self.number = state.text.op(f"sub i32 {plan.lanes - 1}, {number}") if op.reverse else number

    def round(self, items: Sequence[Item], carry: Item | None) -> tuple[list[Item], Item]:
        """Scan the elements of all lanes after ``carry``; also the carry of the next round."""
        state = self.state
        own = [items[0]]
        for item in items[1:]:
            own.append(combine(state, self.block, own[-1], item))
        total = own[-1]
        distance = 1
        while distance < self.count:
            earlier = combine(state, self.block, self._before(total, distance), total)
            total = self._choose(self._at_least(distance), earlier, total)
            distance *= 2
        prefix, known = self._prefix(total, carry)
        if prefix is not None:
            after = [combine(state, self.block, prefix, item) for item in own]
            own = (
                after if known is None else [self._choose(known, new, old) for new, old in zip(after, own, strict=True)]
            )
        last = self._of_last(total)
        return own, last if carry is None else combine(state, self.block, carry, last)

    def _prefix(self, total: Item, carry: Item | None) -> tuple[Item | None, str | None]:
        """What comes before this thread's elements, and where that exists (None: everywhere)."""
        if self.count == 1:
            return carry, None
        before = self._before(total, 1)
        some = self._at_least(1)
        if carry is None:
            return before, some
        return self._choose(some, combine(self.state, self.block, carry, before), carry), None

    def _before(self, item: Item, distance: int) -> Item:
        """The item of the lane ``distance`` earlier in scan order; anything where there is none."""
        step = self.step * (distance if self.reverse else -distance)
        source = self.state.text.op(f"add i32 {self.lane}, {step}")
        return self._from(item, source)

    def _of_last(self, item: Item) -> Item:
        if self.count == 1:
            return item
        first = self.state.text.op(f"and i32 {self.lane}, {31 - self.step * (self.count - 1)}")
        end = 0 if self.reverse else self.step * (self.count - 1)
        return self._from(item, self.state.text.op(f"or i32 {first}, {end}"))

    def _from(self, item: Item, lane: str) -> Item:
        return tuple(
            shuffle_from(self.state, value, elem, lane) for value, elem in zip(item, self.elements, strict=True)
        )

    def _at_least(self, distance: int) -> str:
        return self.state.text.op(f"icmp uge i32 {self.number}, {distance}")

    def _choose(self, condition: str, yes: Item, no: Item) -> Item:
        return tuple(
            self.state.text.op(f"select i1 {condition}, {register_type(e)} {a}, {register_type(e)} {b}")
            for a, b, e in zip(yes, no, self.elements, strict=True)
        )
