"""Prefix scans: serial in a thread, by shuffles across lanes, with a carry from round to round; or, where warps share
out a row, with one exchange of the totals of all its parts (:mod:`.scan_warps`)."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UnsupportedOp
from ...gpu.layouts.scan import plan_scan
from ...tile.reduction import Scan
from .items import Item
from .lowering import Lowering, rule
from .scan_lanes import Lanes
from .scan_warps import Warps

#: The items of a thread's share of a row: round by round, in the order of the scan.
Rounds = list[list[Item]]


@rule(Scan)
def _scan(state: Lowering, op: Scan) -> None:
    layout = op.inputs[0].type.layout
    if layout is None:
        raise UnsupportedOp("a scan needs a layout", location=op.location)
    plan = plan_scan(layout, op.axis)
    inputs = [state.values[v] for v in op.inputs]
    names: list[list[str | None]] = [[None] * len(inputs[0]) for _ in inputs]
    rows = [_in_order(row, op.reverse) for row in plan.rows]
    held = [[[tuple(x[r] for x in inputs) for r in registers] for registers in row] for row in rows]
    lanes = Lanes(state, op, plan.lanes, plan.step)
    made = [_in_one_warp(lanes, row) for row in held] if plan.warps == 1 else Warps(state, op, plan).scan(lanes, held)
    for row, scanned in zip(rows, made, strict=True):
        for registers, items in zip(row, scanned, strict=True):
            for register, item in zip(registers, items, strict=True):
                for place, name in enumerate(item):
                    names[place][register] = name
    for place, result in enumerate(op.results):
        canonical = inputs[place].canonical
        state.define(result, [names[place][c] for c in canonical])


def _in_order(row: Sequence[tuple[int, ...]], reverse: bool) -> list[tuple[int, ...]]:
    """Rounds and their registers in the order of the scan."""
    return [registers[::-1] for registers in reversed(row)] if reverse else list(row)


def _in_one_warp(lanes: Lanes, row: Rounds) -> Rounds:
    made: Rounds = []
    carry: Item | None = None
    for items in row:
        own, total = lanes.scan(items)
        made.append(lanes.follow(own, total, carry))
        last = lanes.of_last(total)
        carry = last if carry is None else lanes.combine(carry, last)
    return made
