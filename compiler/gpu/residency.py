"""Occupancy: how many CTAs a streaming multiprocessor (SM) holds at a time, estimated before code is generated.

One more CTA hides more latency than one more slot in each: threads that wait for their tiles leave the SM to those of
other CTAs. Of 24 products of experts in small tiles on an H200 that took 0.93 of the time in the geometric mean
(benchmarks/results/2026-11-24-h200, experts-before.json and experts-refilled.json against Triton in the same run).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..hardware import MOST_REGISTERS, REGISTER_BITS, REGISTER_FILE, WARPS_PER_GROUP, threads_of
from ..ir.core import Block, Function, Value
from ..launch_recipe import PROGRAMS, Guard
from ..options import Schedule
from ..target import Target
from ..tile.control import For
from ..tile.matmul import Dot
from ..tile.memory import AtomicRMW
from .asynchronous import Put
from .estimates import (
    FEW_ACCUMULATORS,
    LEAST_REGISTERS,
    OTHER_REGISTERS,
    SHORT_DEPTH_BYTES,
    SHORT_ITERATION_CYCLES,
    TURNED_PRODUCTS,
    product_cycles,
)
from .layouts.tensorcore import sums_in_halves
from .layouts.views import unpermuted
from .streams.plan import Stream, StreamPlan

#: What a program must have to do before one that walks over tiles pays: if an SM can hold all of its tiles at the same
#: time, those are done sooner. Of 256 tiles of 128 by 128 in 2048^3 on an H100 with 132 SMs 0.89 of the time, of 128
#: tiles in 1024^3 0.87 to 0.91 (benchmarks/results/2026-11-25-h100-tiles, tiles.json).
MANY_TILES = Guard(PROGRAMS, "least", 3)
#: The same where an SM holds one CTA: with no more programs than SMs, walks save nothing, and pairs of programs leave
#: half of the SMs idle (1.8 of the time of attention; 2026-11-26-h100-last, walks.txt).
SEVERAL_TILES = Guard(PROGRAMS, "least", 2)
#: The same where a slot less lets an SM hold another CTA: with no more programs than SMs none comes. 128 tiles of
#: 64 x 128 x 128, of which two slots leave room, took 1.24 of the time with two that they take with four
#: (benchmarks/results/2026-11-29-h200-rests, gemm.json).
ANOTHER_CTA = Guard(PROGRAMS, "least", 2)


def economised(stream: Stream, target: Target, schedule: Schedule, *, refilled: bool = True) -> Stream:
    """The stream with a slot less, where that lets an SM hold another CTA; else as it is. If slots are ``refilled``,
    each is filled again as soon as it is read, and as many copies are under way when a product waits for its tiles. Of
    two slots only one is left then: attention over pages takes 0.92 of the time with one slot that it takes with two
    (benchmarks/results/2026-11-30-h200-loads, pairs-two-slots.json and pairs.json)."""
    leaner = replace(stream, slots=stream.slots - 1, refilled=refilled)
    if leaner.slots < (1 if refilled else 2):
        return stream
    held, more = (_ctas(made, target, schedule) for made in (stream, leaner))
    return leaner if more > held else stream


def computes_operand(stream: Stream) -> bool:
    """Whether its loop has one product, the second operand of which threads make of what is brought, as of weights of
    few bits. The tensor cores wait for them, which another CTA hides: with weights of 4 bits in i32 two CTAs of two
    slots take 0.80 of the time of one of three (benchmarks/results/2026-11-28-h200-suspects)."""
    dots = [op for op in stream.loop.body.ops if isinstance(op, Dot)]
    return len(dots) == 1 and _is_made(dots[0].b, stream)


def _is_made(operand: Value, stream: Stream) -> bool:
    """Whether threads make the right ``operand`` of a product, and write it to shared memory."""
    return unpermuted(operand) not in {load.result for load in stream.loads}


def _ctas(stream: Stream, target: Target, schedule: Schedule) -> int:
    threads = threads_of(schedule.num_warps)
    dots = stream.loop.body.ops_of(Dot)
    sums = sum(map(_sums, dots))
    registers = min(schedule.maxnreg or REGISTER_FILE, sums // threads + OTHER_REGISTERS)
    shared = stream.slots * sum(group.bytes for group in stream.groups) + target.limits.reserved_bytes
    shared += sum(dot.b.type.size * dot.b.type.elem.bytes for dot in dots if _is_made(dot.b, stream))
    by_shared = target.limits.shared_bytes // shared
    return min(by_shared, threads_of(target.limits.warps) // threads, REGISTER_FILE // (threads * registers))


def _sums(dot: Dot) -> int:
    """Registers of all threads that hold the accumulator of ``dot``: one for two elements that are added up in f16, two
    for one of f64."""
    if sums_in_halves(dot):
        return dot.acc.type.size // 2
    return dot.acc.type.size * max(1, dot.acc.type.elem.bits // REGISTER_BITS)


def registers_between_products(function: Function, schedule: Schedule) -> int:
    """About how many registers a thread has in a loop of so many products that it is not turned
    (:mod:`.latency.rotation`), so that nothing but another CTA hides what is between them; 0 where there is none."""
    # Not those of loops inside.
    bodies = [[op for op in loop.body.ops if isinstance(op, Dot)] for loop in function.ops_of(For)]
    sums = [sum(map(_sums, dots)) for dots in bodies if len(dots) > TURNED_PRODUCTS]
    if not sums:
        return 0
    return min(schedule.maxnreg or MOST_REGISTERS, max(sums) // threads_of(schedule.num_warps) + OTHER_REGISTERS)


def lonely_with_producer(registers: int, schedule: Schedule) -> bool:
    """Whether a warp that copies would take the registers of another CTA, where that is worth more: of one warp
    group whose threads have this many, and work of their own between products, which another CTA's products hide."""
    if not registers or schedule.num_warps != WARPS_PER_GROUP:
        return False
    group = WARPS_PER_GROUP
    alone, followed = (REGISTER_FILE // (threads_of(warps) * registers) for warps in (group, group + 1))
    return alone > followed


def slots_for_another_cta(plan: StreamPlan, total: int, schedule: Schedule, target: Target) -> int | None:
    """How many slots rings may have at most, now that a CTA has ``total`` bytes of shared memory, for an SM to hold
    another one for which there are registers; None where it holds as many as it can, or could hold no more."""
    bytes_of_slot = sum(group.bytes for stream in plan.streams for group in stream.groups)
    if not plan.registers or plan.slots <= 2:
        return None
    capacity, reserved = target.limits.shared_bytes, target.limits.reserved_bytes
    held = capacity // (total + reserved)
    if held >= REGISTER_FILE // (threads_of(schedule.num_warps) * plan.registers):
        return None
    surplus = total + reserved - capacity // (held + 1)
    fewer = plan.slots + -surplus // bytes_of_slot
    return fewer if fewer >= 2 else None


def shared_by_two(function: Function, streams: Sequence[Stream], target: Target, schedule: Schedule) -> bool:
    """Whether an SM can hold two CTAs of what the schedule says and a warp that copies: one begins or ends while the
    other multiplies. Of a kernel with one product whose operands lie in shared memory it is known how few registers it
    needs; of others with one product a loop it is said with room to spare."""
    dots = function.ops_of(Dot)
    loads = {load.result for stream in streams for load in stream.loads}
    plain = len(dots) == 1 and all(unpermuted(operand) in loads for operand in (dots[0].a, dots[0].b))
    sums, chained = _most_sums(function)
    if chained:
        return False
    warps = schedule.num_warps
    registers = sums // threads_of(warps) + (LEAST_REGISTERS if plain else OTHER_REGISTERS)
    rings = sum(stream.slots * group.bytes for stream in streams for group in stream.groups)
    return (
        all(dot.a.type.elem.bits > 8 for dot in dots)
        and 2 * registers * threads_of(warps + 1) <= REGISTER_FILE
        and 2 * (rings + target.limits.reserved_bytes) <= target.limits.shared_bytes
    )


def leaving_room(
    function: Function, streams: Sequence[Stream], target: Target, schedule: Schedule
) -> Sequence[Stream] | None:
    """The streams with as many slots less as let an SM hold two CTAs of one warp group, which a producer feeds, two
    slots each at least; None where it holds two as it is, or never. 4096^3 in tiles of 128 x 128 x 64 takes 0.82 of the
    time with three slots that it takes with four (benchmarks/results/2026-11-29-h200-slots, slots.txt)."""
    if schedule.num_warps != WARPS_PER_GROUP or shared_by_two(function, streams, target, schedule):
        return None
    for fewer in range(1, max(stream.slots for stream in streams) - 1):
        made = [replace(stream, slots=max(stream.slots - fewer, 2)) for stream in streams]
        if shared_by_two(function, made, target, schedule):
            return made
    return None


def _most_sums(function: Function) -> tuple[int, bool]:
    """Registers of all threads for the accumulators of the loop that has most of them, and whether one has several
    products; what is in no loop counts as one."""
    loops = [loop.body for loop in function.ops_of(For)]
    products = [[_sums(dot) for dot in _products(block)] for block in (function.body, *loops)]
    return max(map(sum, products)), max(map(len, products)) > 1


def _products(block: Block) -> Iterator[Dot]:
    """The products of ``block`` that are in no loop inside of it."""
    for op in block.ops:
        if isinstance(op, Dot):
            yield op
        elif not isinstance(op, For):
            for inner in op.blocks:
                yield from _products(inner)


def tiles_that_pay(function: Function, streams: Sequence[Stream], target: Target, schedule: Schedule) -> Guard | None:
    """How many programs an SM must have for one that walks over them to pay; None where that is not known to be more
    than one program in all: a single product in tiles that fill an SM."""
    if shared_by_two(function, streams, target, schedule):
        return MANY_TILES
    return SEVERAL_TILES if len(function.ops_of(Dot)) > 1 else None


def with_slots_in_use(
    streams: Sequence[Stream], function: Function, target: Target, schedule: Schedule, resident: int
) -> list[Stream]:
    """Streams that a producer fills for several groups, with a slot more for each group, as far as the shared memory of
    ``resident`` CTAs goes: groups read at their own pace, and what each of them is at cannot be filled. Only where
    products are so short that a copy takes longer than those of one iteration."""
    groups = schedule.num_warps // WARPS_PER_GROUP
    short = [groups > 1 and not computes_operand(stream) and _is_short(stream) for stream in streams]
    staged = sum(op.place.size * op.place.elem.bytes for op in function.walk() if isinstance(op, Put))
    # Programs that work on many tiles copy for the next one while they write the last one.
    beside = (staged if resident == 1 else 0) + target.limits.reserved_bytes
    for more in range(groups, 0, -1):
        made = [replace(s, slots=s.slots + more) if add else s for s, add in zip(streams, short, strict=True)]
        rings = sum(stream.slots * group.bytes for stream in made for group in stream.groups)
        if resident * (rings + beside) <= target.limits.shared_bytes:
            return made
    return list(streams)


def _is_short(stream: Stream) -> bool:
    cycles = sum(product_cycles(dot.acc.type, dot.a.type) for dot in stream.loop.body.ops_of(Dot))
    return cycles <= SHORT_ITERATION_CYCLES


def better_by_two(function: Function, streams: Sequence[Stream], target: Target, schedule: Schedule) -> bool:
    """Whether two such CTAs, one tile each, beat one that walks over tiles and copies for the next one ahead: where
    tiles are added to memory by atomics, for which the tensor cores of their CTA wait, or where products are so
    short that a CTA's own slots do not hide how long a copy takes, or its own threads what is between products."""
    if not shared_by_two(function, streams, target, schedule):
        return False
    adds = any(isinstance(op, AtomicRMW) and op.value.type.rank == 2 for op in function.walk())
    few = FEW_ACCUMULATORS * threads_of(schedule.num_warps)
    return adds or any(
        dot.a.type.shape[1] * dot.a.type.elem.bytes <= SHORT_DEPTH_BYTES or dot.acc.type.size <= few
        for dot in function.ops_of(Dot)
    )
