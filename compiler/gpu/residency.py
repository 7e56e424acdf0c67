"""How many blocks a processor holds at a time, as far as that can be told before code is generated.

One more block hides more latency than one more slot in each: threads that wait for their tiles leave the processor to
those of other blocks. Of 24 products of experts in small tiles on an H200 that took 0.93 of the time in the geometric
mean (benchmarks/results/2026-11-24-h200, experts-before.json and experts-refilled.json against Triton in the same run).
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.types import Tile
from ..options import Schedule
from ..target import Target
from ..tile.matmul import Dot
from .legality import REGISTER_FILE
from .streams import Stream

#: Shared memory that the system takes of each block, bytes (CUDA C++ Programming Guide, "Technical Specifications per
#: Compute Capability": what one block may use is this much less than what a processor has).
RESERVED_BYTES = 1024
#: Threads that a processor of any target holds; some hold 2048.
LEAST_CAPACITY = 1536
#: About how many registers a thread has beside those of accumulators: operands, addresses, masks.
OTHER_REGISTERS = 80


def economised(stream: Stream, target: Target, schedule: Schedule) -> Stream:
    """The stream with a slot less, each filled again as soon as it is read, where that lets a processor hold another
    block; else as it is. As many copies are under way when a product waits for its tiles."""
    leaner = replace(stream, slots=stream.slots - 1, refilled=True)
    if leaner.slots < 2:
        return stream
    held, more = (_blocks(made, target, schedule) for made in (stream, leaner))
    return leaner if more > held else stream


def _blocks(stream: Stream, target: Target, schedule: Schedule) -> int:
    threads = 32 * schedule.num_warps
    dots = [op for op in stream.loop.body.walk() if isinstance(op, Dot)]
    sums = sum(op.acc.type.size for op in dots if isinstance(op.acc.type, Tile))
    registers = min(schedule.maxnreg or REGISTER_FILE, sums // threads + OTHER_REGISTERS)
    shared = stream.slots * sum(group.bytes for group in stream.groups) + RESERVED_BYTES
    by_shared = (target.shared_bytes + RESERVED_BYTES) // shared
    return min(by_shared, LEAST_CAPACITY // threads, REGISTER_FILE // (threads * registers))
