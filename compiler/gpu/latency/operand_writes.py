"""Instruction scheduling of operands that threads bring: one leaves for shared memory before the next is read, where
registers do not suffice for both.

Rows that begin anywhere are copied by no engine: threads load their elements, each into a register of its own, and
write them to shared memory as the product begins. Before the first of them is written threads wait for each other, and
an assembler moves no load across that, so that the elements of both operands would be in registers at once.
"""

from __future__ import annotations

from ...hardware import REGISTER_BITS
from ...ir.core import Block, Function, Op
from ...tile.control import For
from ..asynchronous import Wgmma
from ..estimates import CARRIED_REGISTERS, HELD_REGISTERS
from ..ops import ConvertLayout, VectorLoad
from .loads import registers_of


def write_operands_early(function: Function, threads: int) -> None:
    """Write operands behind their loads in loops that are short of registers, in place; CTAs have so many
    ``threads``."""
    for loop in [op for op in function.walk() if isinstance(op, For)]:
        if any(isinstance(op, Wgmma) for op in loop.body.ops):
            carried = sum(registers_of(value, threads) for value in loop.inits)
            _write_early(loop.body, min(HELD_REGISTERS, CARRIED_REGISTERS - carried), threads)


def _write_early(block: Block, left: int, threads: int) -> None:
    loads = [op for op in block.ops if isinstance(op, VectorLoad) and op.result.type.rank]
    for write in [op for op in block.ops if isinstance(op, ConvertLayout) and writes_tile(op)]:
        loaded = next((load for load in loads if load.result is write.x), None)
        if loaded is None:
            continue
        begin, end = block.ops.index(loaded), block.ops.index(write)
        if sum(_held(load, threads) for load in loads if begin <= block.ops.index(load) < end) > left:
            block.ops.insert(begin + 1, block.ops.pop(end))


def writes_tile(op: Op) -> bool:
    """Whether ``op`` writes a tile from registers to shared memory."""
    return isinstance(op, ConvertLayout) and op.to.shared is not None and op.x.type.shared is None


def _held(load: VectorLoad, threads: int) -> int:
    """Registers of a thread for what it has loaded: those of an access are its own."""
    tile = load.result.type
    accesses = -(-tile.size // (threads * load.vector))
    return accesses * -(-load.vector * tile.elem.bytes * 8 // REGISTER_BITS)
