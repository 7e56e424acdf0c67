"""Instruction scheduling of stores: results of an iteration leave while its products are under way.

A loop that hands a state on, as those of linear attention do, writes the state before it multiplies it. Where that
stands, threads would arrange the numbers for memory, which they wait for each other for, before the tensor cores have
anything to do. Here stores come behind the products that are begun next.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.core import Block, Effect, Function, Op, Value
from ...tile.control import For
from ...tile.matmul import Dot
from ...tile.memory import Load, Store
from ..arrays import Arrays
from ..asynchronous import Receive, Slot
from ..estimates import CARRIED_REGISTERS, HELD_REGISTERS
from ..streams.ahead import may_precede
from .loads import registers_of


def delay_stores(function: Function, threads: int) -> None:
    """Move stores in loops behind the products that follow them, in place; CTAs have so many ``threads``."""
    arrays = Arrays(function)
    for block in list(function.body.nest()):
        for loop in [op for op in block.ops if isinstance(op, For)]:
            carried = sum(registers_of(value, threads) for value in loop.inits)
            _delay(loop.body, min(HELD_REGISTERS, CARRIED_REGISTERS - carried), arrays, threads)


def _delay(block: Block, left: int, arrays: Arrays, threads: int) -> None:
    for store in reversed([op for op in block.ops if isinstance(op, Store) and op.value.type.rank]):
        registers = registers_of(store.value, threads)
        begin = block.ops.index(store)
        passed = _passed(store, block.ops[begin + 1 :], arrays)
        if passed and registers <= left:
            left -= registers
            block.ops.insert(begin + passed, block.ops.pop(begin))


def _passed(store: Store, following: Sequence[Op], arrays: Arrays) -> int:
    """How many of the operations behind ``store`` it may be behind: up to the last product that begins before anyone
    needs the result of one."""
    under_way: set[Value] = set()
    passed = 0
    for number, op in enumerate(following, 1):
        if isinstance(op, Dot) and not under_way & {op.a, op.b}:
            under_way.add(op.result)
            passed = number
        elif under_way & op.reads or not _may_cross(store, op, arrays):
            break
    return passed


def _may_cross(store: Store, op: Op, arrays: Arrays) -> bool:
    """Whether ``op`` may be before the store: what touches no array, or another one. Slots stay until what is stored of
    them has been read."""
    if isinstance(op, Load) and op.is_awaited:
        return False
    if isinstance(op, Load | Store):
        return may_precede(arrays.of(op.pointer), {arrays.of(store.pointer)})
    return op.effect is Effect.PURE or isinstance(op, Receive | Slot)
