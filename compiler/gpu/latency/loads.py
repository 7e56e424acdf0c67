"""Instruction scheduling of loads: tiles that are read beside products are asked for together.

Products and conversions between layouts make threads wait for each other, and an assembler moves no load across that:
where each tile is read just before it is used, a program waits for memory once a tile. Here the loads of a block come
one after the other where it begins, as far as registers are left for what has come and is not used yet, so that it
waits once. A step of a gated delta rule, which reads four tiles and adds up two products, is what this is for: few
programs walk through long sequences, and nothing else hides the latency.

Elsewhere an assembler moves loads too freely: where it sees that those of a tile and a store of another one touch
different places, it takes them in turns, which saves registers and waits for memory many times. So such a store is kept
behind the loads before it. What is stored must not be made of what they read, or it is behind them by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...hardware import REGISTER_BITS
from ...ir.core import Block, Effect, Function, Op, Value
from ...ir.slices import backward_slice
from ...tile.control import For, While
from ...tile.matmul import Dot
from ...tile.memory import Barrier, Load, Store
from ..arrays import Arrays
from ..asynchronous import Vacate
from ..estimates import CARRIED_REGISTERS, HELD_REGISTERS
from ..ops import VectorLoad, VectorStore, WarpBarrier
from ..streams.ahead import may_precede


def begin_loads(function: Function, threads: int) -> None:
    """Move loads beside products up to where their block begins, in place; CTAs have so many ``threads``."""
    arrays = Arrays(function)
    _begin(function.body, 0, arrays, threads)
    for block in list(function.body.nest()):
        for op in block.ops:
            for inner in op.blocks:
                carried = sum(registers_of(value, threads) for value in op.inits) if isinstance(op, For) else 0
                _begin(inner, carried, arrays, threads)


def keep_loads_first(function: Function) -> None:
    """Keep stores in loops behind the loads of tiles before them, in place, once all else is decided."""
    for loop in [op for op in function.walk() if isinstance(op, For | While)]:
        for block in loop.blocks:
            block.ops[:] = list(_in_order(block))


def _in_order(block: Block) -> Iterator[Op]:
    loads: list[Op] = []
    for op in block.ops:
        if isinstance(op, VectorLoad) and op.result.type.rank:
            loads.append(op)
        elif isinstance(op, Barrier | Vacate | WarpBarrier):
            loads.clear()
        elif loads and isinstance(op, VectorStore):
            since = block.ops[block.ops.index(loads[0]) : block.ops.index(op)]
            if backward_slice(op.operands, since).isdisjoint(loads):
                yield WarpBarrier()
                loads.clear()
        yield op


def registers_of(value: Value, threads: int) -> int:
    """Registers of a thread for its part of a tile."""
    if not value.type.rank:
        return 0
    return -(-value.type.size * value.type.elem.bytes * 8 // (threads * REGISTER_BITS))


def _begin(block: Block, carried: int, arrays: Arrays, threads: int) -> None:
    if not any(isinstance(op, Dot) for op in block.ops):
        return
    left = min(HELD_REGISTERS, CARRIED_REGISTERS - carried)
    start = 0
    for load in [op for op in block.ops if isinstance(op, Load) and not op.is_awaited and op.result.type.rank]:
        registers = registers_of(load.result, threads)
        if registers > left:
            continue
        end = block.ops.index(load)
        between = block.ops[start:end]
        needed = backward_slice(load.operands, between)
        crossed = [op for op in between if op not in needed]
        if any(op.effect is not Effect.PURE for op in needed):
            continue
        if not all(_may_cross(load, op, arrays) for op in crossed):
            continue
        left -= registers
        first = [*(op for op in between if op in needed), load]
        block.ops[start : end + 1] = [*first, *crossed]
        start += len(first)


def _may_cross(load: Load, op: Op, arrays: Arrays) -> bool:
    """Whether the load may be before ``op``: a store to another array, or what writes nothing and reads what may be
    read at any time."""
    for one in op.walk():
        if isinstance(one, Store):
            if not may_precede(arrays.of(load.pointer), {arrays.of(one.pointer)}):
                return False
        elif one.effect is Effect.WRITE or (isinstance(one, Load) and one.is_awaited):
            return False
    return True
