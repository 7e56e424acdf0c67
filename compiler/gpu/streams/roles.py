"""Warp specialisation: streams in warp groups with different roles. A producer brings tiles, consumers compute.

The producer is what is left of the function when copies take the place of the loads, all other effects are dropped and
dead code is removed: what decides where boxes lie. The consumers are the function with slots in place of the loads.
Both walk the same loops, so they agree on which slot holds what without a word; a slot's two mbarriers keep them apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...hardware import MOST_REGISTERS, REGISTER_FILE, WARPS_PER_GROUP, threads_of
from ...ir.core import Block, Effect, Function, Op, Value
from ...options import Schedule
from ...tile.memory import Barrier, GridWait
from ...tile.passes import dce
from ...tile.records import Record
from ..arrays import READS, Arrays
from ..asynchronous import Acquire, Advance, Fetch, Receive, Release, Roles
from ..estimates import RECORD_REGISTERS
from ..layouts.views import is_view
from .plan import Group, Stream
from .rings import Rings, StreamMemory

#: Registers of a thread of a producer: the fewest that setmaxnreg gives (PTX ISA: 24 to 256, multiples of 8).
PRODUCER_REGISTERS = 24
_REGISTER_UNIT = 8
#: Registers of a thread of the consumers, at most: what those of two groups get, and more groups get fewer.
CONSUMER_REGISTERS = 240
#: What a producer does. What it brings may be the result of the kernel before, for which consumers wait in vain if it
#: does not.
COPYING: tuple[type[Op], ...] = (Acquire, Fetch, Advance, GridWait)


def expand_roles(function: Function, streams: Sequence[Stream], moves_registers: bool, resident_ctas: int) -> int:
    """Give every stream of ``function`` to a producer, in place; returns the number of its warps.

    ``resident_ctas``: how many an SM is to hold; registers move to the consumers of one alone. Returns 0, and leaves
    the function as it is, where the producer would need results of the computation or an engine that is not the copy
    engine.
    """
    warps = function.warps
    if any(group.engine != "tma" for stream in streams for group in stream.groups):
        return 0
    memory = StreamMemory(readers=warps)
    rings = {ring.group: ring for stream in streams for ring in memory.of(stream)}
    # Scopes of the producer that depend on what is computed are left to the consumers.
    producer = _producer(function, streams, rings, memory, (*COPYING, Record)) or _producer(
        function, streams, rings, memory, COPYING
    )
    if producer is None:
        return 0
    for stream in streams:
        _consume(stream, rings)
    # One warp is enough to copy, and leaves room for more programs on an SM; but only a whole group can give its
    # registers to the consumers, as several groups of those need.
    alone = warps > WARPS_PER_GROUP and resident_ctas == 1
    added = WARPS_PER_GROUP if alone else 1
    records = any(isinstance(op, Record) for op in producer.walk())
    moved = _registers(warps, PRODUCER_REGISTERS + RECORD_REGISTERS * records) if alone and moves_registers else (0, 0)
    # Small CTAs are as many as fit, whatever is said.
    aim = resident_ctas if moves_registers and warps > WARPS_PER_GROUP else 0
    roles = Roles(added, aim, *moved, producer, Block(ops=function.body.ops))
    function.body.ops = [*memory.ops, Barrier(), roles]
    return added


def consumer_registers(schedule: Schedule) -> int:
    """Most registers of a thread of the consumers."""
    warps = schedule.num_warps
    shared_out = _registers(warps)[1] if warps > WARPS_PER_GROUP else MOST_REGISTERS
    return min(schedule.maxnreg or MOST_REGISTERS, shared_out)


def _registers(warps: int, producer: int = PRODUCER_REGISTERS) -> tuple[int, int]:
    """Registers of a thread of producer and consumers; what all have at first is shared out anew."""
    threads = threads_of(warps + WARPS_PER_GROUP)
    first = min(MOST_REGISTERS, REGISTER_FILE // threads) // _REGISTER_UNIT * _REGISTER_UNIT
    left = first * threads - producer * threads_of(WARPS_PER_GROUP)
    return producer, min(CONSUMER_REGISTERS, left // threads_of(warps) // _REGISTER_UNIT * _REGISTER_UNIT)


def _producer(
    function: Function,
    streams: Sequence[Stream],
    rings: dict[Group, Rings],
    memory: StreamMemory,
    effects: tuple[type[Op], ...],
) -> Block | None:
    """A copy of the function that only fetches, with no other ``effects``; None if that needs more than scalar code."""
    env: dict[Value, Value] = {}
    made = Function(function.name, function.parameters, function.body.clone(env), function.num_warps)
    arguments = made.body.args
    back = dict(zip(arguments, function.body.args, strict=True))
    for stream in streams:
        _fetch_instead(made.body, stream, rings, env)
    _drop_effects(made.body, effects)
    shared = memory.ops
    made.body.ops[:0] = shared
    dce(made)
    body = made.body
    body.ops = [op for op in body.ops if op not in shared]
    body.replace_uses(back)
    body.args = []
    arrays = Arrays(function)
    written = arrays.written(function)
    for op in body.walk():
        # Both sides must see the same values, so what they read may not change meanwhile.
        if isinstance(op, READS) and (None in written or arrays.of(op.operands[0]) in written | {None}):
            return None
    visible = {*function.body.args, *(result for op in shared for result in op.results)}
    return body if _is_whole(body, visible) else None


def _fetch_instead(body: Block, stream: Stream, rings: dict[Group, Rings], env: dict[Value, Value]) -> None:
    """Replace the loads of the copied loop by fetches, where the last load of each group stood."""
    copies = {env[load.result].op: load for load in stream.loads}
    block = next(b for b in body.nest() if any(op in copies for op in b.ops))
    ops: list[Op] = []
    waiting = {group: len(group.sources) for group in stream.groups}
    for op in block.ops:
        load = copies.get(op)
        if load is None:
            ops.append(op)
            continue
        group = next(g for g in stream.groups if any(s.load is load for s in g.sources))
        waiting[group] -= 1
        if not waiting[group]:
            ops += rings[group].fetch(env)
            ops.append(Advance(rings[group].pipe.result))
    block.ops = ops


def _drop_effects(block: Block, kept: tuple[type[Op], ...]) -> None:
    """Leave out what the consumers do for both."""
    block.ops = [op for op in block.ops if op.effect is not Effect.WRITE or isinstance(op, kept)]
    for op in block.ops:
        for nested in op.blocks:
            _drop_effects(nested, kept)


def _is_whole(block: Block, visible: set[Value]) -> bool:
    """Whether everything is scalar and defined: nothing came from an operation that was dropped."""
    visible = visible | set(block.args)
    for op in block.ops:
        if any(v not in visible or (v.type.rank and not isinstance(op, Fetch)) for v in op.operands):
            return False
        if any(v.type.rank for v in op.results) or not all(_is_whole(nested, visible) for nested in op.blocks):
            return False
        visible.update(op.results)
    return True


def _consume(stream: Stream, rings: dict[Group, Rings]) -> None:
    """Receive before the first use of each group, release after the last."""
    body = stream.loop.body
    loads = set(stream.loads)
    ops = [op for op in body.ops if op not in loads]
    for group in stream.groups:
        ring = rings[group]
        readers = _readers(ops, {source.load.result for source in group.sources})
        replaced: dict[Value, Value] = {}
        slots = ring.slots(replaced)
        first, last = ops.index(readers[0]), ops.index(readers[-1])
        for reader in readers:
            reader.replace_uses(replaced)
        ops[last + 1 : last + 1] = [Release(ring.pipe.result)]
        ops[first:first] = [Receive(ring.pipe.result), *slots]
    body.ops = ops


def _readers(ops: list[Op], values: set[Value]) -> list[Op]:
    """The operations that read the memory of ``values``, through views, in order: threads read what a view shows where
    somebody computes with it."""
    found = []
    for op in ops:
        if values & op.reads:
            found.append(op)
            if is_view(op):
                values = values | set(op.results)
    return found
