"""Slots are filled again as soon as what was in them is in registers, beside the products of it.

Products of warps' own instructions (mma.sync) read their operands from registers. In a loop that refills the slots that
it reads (:mod:`.multistage`) the barrier and the fetch behind the products move up to the last read of a slot: the
copies are begun while tensor cores work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..ir.core import Block, Function, Op, Value
from ..ir.types import Tile
from ..tile.control import For
from ..tile.memory import Barrier
from .asynchronous import Release, Slot
from .reduction import bits_of

#: Registers that a thread may hold of tiles while it waits for the barrier. More would be moved to memory or leave less
#: blocks on a processor than the slot that was saved has brought.
MOST_REGISTERS = 128


def refill_early(function: Function) -> None:
    """Rewrite every loop of ``function`` that refills its slots, in place. Tiles have layouts."""
    for op in function.walk():
        if isinstance(op, For):
            _move_up(op.body)


def _move_up(body: Block) -> None:
    ops = body.ops
    releases = [place for place, op in enumerate(ops) if isinstance(op, Release)]
    if not releases or not isinstance(ops[releases[-1] + 1], Barrier):
        return
    begin = releases[0]
    reads = [place for place, op in enumerate(ops[:begin]) if any(map(_reads_a_slot, _all_of(op)))]
    behind = 1 + max(reads, default=begin)
    products, fetch = ops[behind:begin], ops[begin:-1]
    made = {result for op in products for result in op.results}
    if made.isdisjoint(_needs(fetch)) and _registers(_needs(products) - made) <= MOST_REGISTERS:
        body.ops = [*ops[:behind], *fetch, *products, ops[-1]]


def _reads_a_slot(op: Op) -> bool:
    return not isinstance(op, Slot) and any(isinstance(v.type, Tile) and v.type.shared is not None for v in op.operands)


def _all_of(op: Op) -> Iterator[Op]:
    """``op`` and what is in it."""
    yield op
    for block in op.blocks:
        yield from block.walk()


def _needs(ops: Sequence[Op]) -> set[Value]:
    return {value for op in ops for one in _all_of(op) for value in one.operands}


def _registers(values: set[Value]) -> int:
    """Registers of a thread for all tiles among ``values``."""
    tiles = (value.type for value in values if isinstance(value.type, Tile))
    return sum(tile.layout.registers * bits_of(tile) // 32 for tile in tiles if tile.layout is not None)
