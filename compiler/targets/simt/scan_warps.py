"""How warps scan a row together: each scans its part of every round, tells all others what it comes to, and puts what
came before a part before its elements.

A row's totals stand next to each other in shared memory, in the order of the scan. The lanes of every warp read them,
a few each, scan them as they do elements, and hand what comes before its parts to the warp.
"""

from __future__ import annotations

from functools import partial

from ...gpu.layouts.reduction import bits_of
from ...gpu.layouts.scan import ScanPlan
from ...hardware import LANE_BITS
from ...tile.reduction import Scan
from .control import when
from .items import Item
from .lowering import Lowering
from .scan_lanes import Lanes
from .scratch_slots import ScratchSlots


class Warps:
    """The warps that share rows: this thread's among them, from 0 where the scan starts, and the totals of all."""

    def __init__(self, state: Lowering, op: Scan, plan: ScanPlan) -> None:
        self.state, self.plan, self.reverse = state, plan, op.reverse
        text = state.text
        shifted = text.op(f"lshr i32 {state.thread}, {LANE_BITS + plan.warp_step.bit_length() - 1}")
        number = text.op(f"and i32 {shifted}, {plan.warps - 1}")
        self.number = text.op(f"sub i32 {plan.warps - 1}, {number}") if op.reverse else number
        #: How many totals a lane reads, and the lanes that read all of a row.
        self.each = plan.share_of(max(v.type.elem.bytes for v in op.inputs))
        self.readers = Lanes(state, op, plan.parts // self.each, plan.step)
        self.told, self.read = self._slots(op)

    def scan(self, lanes: Lanes, rows: list[list[list[Item]]]) -> list[list[list[Item]]]:
        """The rows of one thread, round by round in the order of the scan, as ``lanes`` of all warps scan them."""
        shares = [[lanes.scan(items) for items in row] for row in rows]
        last = None if lanes.count == 1 else lanes.at_least(lanes.count - 1)
        when(self.state, last, partial(self._tell, [[total for _, total in row] for row in shares]))
        self.state.barrier()
        made = []
        for row, position in zip(shares, self.plan.positions, strict=True):
            carries = self._before(position)
            some: list[str | None] = [self._at_least(self.number, 1), *[None] * (len(row) - 1)]
            parts = zip(row, carries, some, strict=True)
            made.append([lanes.follow(own, total, carry, carried) for (own, total), carry, carried in parts])
        return made

    def _slots(self, op: Scan) -> tuple[list[ScratchSlots], list[ScratchSlots]]:
        """Where this thread's warp puts its totals, and from where on the thread reads them, for each operand."""
        plan = self.plan
        lane = [flat * plan.parts for flat in plan.result.flat_lane]
        warp = [flat * plan.parts for flat in plan.result.flat_warp]
        own, share = list(warp), list(lane)
        for bit in range(plan.warps.bit_length() - 1):
            own[bit + plan.warp_step.bit_length() - 1] |= 1 << bit
        for bit in range(self.readers.count.bit_length() - 1):
            share[bit + plan.step.bit_length() - 1] |= self.each << bit
        told, read = [], []
        start = self.state.scratch(op)
        for value in op.inputs:
            told.append(ScratchSlots(self.state, value.type.elem, start, lane, own))
            read.append(ScratchSlots(self.state, value.type.elem, start, share, warp))
            start += plan.scratch_bytes(bits_of(value.type))
        return told, read

    def _tell(self, rows: list[list[Item]]) -> None:
        """Store the totals of this warp's parts."""
        # ScratchSlots are in the order of the scan: addresses of warps count down where that is from the end.
        first = self.plan.warps - 1 if self.reverse else 0
        for row, position in zip(rows, self.plan.positions, strict=True):
            for turn, total in enumerate(row):
                slot = position * self.plan.parts + turn * self.plan.warps + first
                for slots, value in zip(self.told, total, strict=True):
                    slots.store(slot, value)

    def _before(self, position: int) -> list[Item]:
        """What comes before this warp's part of each round; anything before the first part of all."""
        first = self.plan.parts - self.each if self.reverse else 0
        start = position * self.plan.parts + first
        totals: list[Item] = list(zip(*(slots.load(start, self.each) for slots in self.read), strict=True))
        sums, total = self.readers.scan(totals)
        known: dict[int, Item] = {}
        made = []
        for part in range(0, self.plan.parts, self.plan.warps):
            inside = part % self.each
            if inside not in known:
                known[inside] = self._before_one(sums, total, inside)
            made.append(self._of_reader(known[inside], part // self.each))
        return made

    def _before_one(self, sums: list[Item], total: Item, first: int) -> Item:
        """Of what a lane read: all that comes before the total of this thread's warp, which is one of the totals from
        ``first`` on. ``sums``: of the totals that it read; ``total``: with those that lanes before it read."""
        readers, text = self.readers, self.state.text
        reach = min(self.each, self.plan.warps)
        number = text.op(f"and i32 {self.number}, {reach - 1}")
        earlier = sums[max(0, first - 1)]
        for place in range(1 if first else 2, reach):
            earlier = readers.choose(self._at_least(number, place), sums[first + place - 1], earlier)
        if readers.count == 1:
            return earlier
        before = readers.before(total, 1)
        joined = readers.choose(readers.at_least(1), readers.combine(before, earlier), earlier)
        return joined if first else readers.choose(self._at_least(number, 1), joined, before)

    def _of_reader(self, item: Item, first: int) -> Item:
        """The item of the lane that read this warp's total, which is ``first`` or one that follows it."""
        if self.readers.count == 1:
            return item
        text = self.state.text
        following = text.op(f"lshr i32 {self.number}, {self.each.bit_length() - 1}")
        return self.readers.of(item, text.op(f"add i32 {following}, {first}"))

    def _at_least(self, number: str, least: int) -> str:
        return self.state.text.op(f"icmp uge i32 {number}, {least}")
