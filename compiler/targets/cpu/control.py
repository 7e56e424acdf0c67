"""Structured control flow: scalars become phis, carried tiles live in buffers that are updated in place."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from ...errors import IRError
from ...ir.core import Block, Value
from ...llvm.typed import Typed, constant
from ...tile import control
from ...tile.memory import AtomicCAS, AtomicRMW, Load
from .arena import Buffer, Stored
from .chunk import Uniform, llvm_element
from .debug import require
from .expressions import tiles_read
from .loops import BasicBlock
from .lower import CpuLowering
from .nests import compute_into
from .pending import settle_for_region
from .program_order import run
from .rule_sets import statements


@dataclass(slots=True)
class CarriedBuffer:
    """The buffer of one carried tile. ``borrowed``: it belongs to an enclosing loop."""

    buffer: Buffer
    borrowed: bool


@dataclass(slots=True)
class Slots:
    """Where the carried values of one region live: a phi for a scalar, a slot for a tile."""

    values: list[Typed | CarriedBuffer]

    def bind(self, low: CpuLowering, args: Sequence[Value]) -> None:
        """Make ``args`` stand for the carried values."""
        low.live.define(args)
        for arg, place in zip(args, self.values, strict=True):
            if isinstance(place, CarriedBuffer):
                low.stored[arg] = Stored(place.buffer, arg.type.shape)
            else:
                low.set_scalar(arg, place)

    def unbind(self, low: CpuLowering, args: Sequence[Value]) -> None:
        """Forget where tiles among ``args`` lay; scalars need nothing."""
        for arg in args:
            low.stored.pop(arg, None)

    def finish(self, low: CpuLowering, results: Sequence[Value]) -> None:
        """Hand the values over to the results of the operation."""
        for result, place in zip(results, self.values, strict=True):
            if isinstance(place, CarriedBuffer):
                place.buffer.pinned = place.borrowed
                low.define_stored(result, place.buffer)
            else:
                low.set_scalar(result, place)


def _slot_for(low: CpuLowering, init: Value) -> CarriedBuffer:
    """A buffer that holds ``init``: its own if nobody else reads it, else a copy."""
    if init in low.stored and init in low.live.dying([init]):
        buffer = low.stored.pop(init).buffer
    else:
        buffer = low.allocate(init)
        compute_into(low, init, buffer)
    slot = CarriedBuffer(buffer, buffer.pinned)
    buffer.pinned = True
    return slot


def _fresh_slot(low: CpuLowering, value: Value) -> CarriedBuffer:
    buffer = low.allocate(value)
    buffer.pinned = True
    return CarriedBuffer(buffer, False)


def _leave(low: CpuLowering, slots: Slots, values: Sequence[Value]) -> list[Typed | None]:
    """Put ``values`` where ``slots`` expects them; returns the scalars (None for tiles)."""
    assign(low, [(p, v) for p, v in zip(slots.values, values, strict=True) if isinstance(p, CarriedBuffer)])
    scalars = [None if v.type.rank else low.scalar(v).value for v in values]
    for value in values:
        low.live.release(value)
    return scalars


def assign(low: CpuLowering, pairs: list[tuple[CarriedBuffer, Value]]) -> None:
    """Write each value to its slot as if all were written at once."""
    sources: list[tuple[CarriedBuffer, Value | Buffer]] = [
        (slot, v) for slot, v in pairs if v not in low.stored or low.stored[v].buffer is not slot.buffer
    ]
    sizes = {id(slot): v.type.size * v.type.elem.bytes for slot, v in pairs}
    while sources:
        for index, (slot, source) in enumerate(sources):
            rest = sources[:index] + sources[index + 1 :]
            awaited = any(id(slot.buffer) in _reads(low, s) for _, s in rest)
            if not awaited and _reads(low, source).get(id(slot.buffer), True):
                _fill(low, slot, source, sizes[id(slot)])
                sources.pop(index)
                break
        else:  # they read each other's slots: compute one aside
            slot, source = sources[0]
            if isinstance(source, Buffer):
                raise AssertionError("a copy reads no slot")
            aside = low.allocate(source)
            compute_into(low, source, aside)
            sources[0] = (slot, aside)


def _reads(low: CpuLowering, source: Value | Buffer) -> dict[int, bool]:
    """The buffers that computing ``source`` reads, and whether only at the places it writes."""
    if isinstance(source, Buffer):
        return {}
    found: dict[int, bool] = {}
    for value, same_place in tiles_read(source, low.stored).items():
        stored = low.stored.get(value)
        if stored is not None:
            key = id(stored.buffer)
            found[key] = found.get(key, True) and same_place
    return found


def _fill(low: CpuLowering, slot: CarriedBuffer, source: Value | Buffer, size: int) -> None:
    if isinstance(source, Value):
        compute_into(low, source, slot.buffer)
        return
    to, origin = (low.e.offset(low.scratch, Typed("i64", str(b.offset)), "i8") for b in (slot.buffer, source))
    operands = [("ptr", to.name), ("ptr", origin.name), ("i64", str(size)), ("i1", "false")]
    low.function.call("void", "llvm.memcpy.p0.p0.i64", operands)
    low.arena.free(source)


def _inputs(low: CpuLowering, inits: Sequence[Value]) -> tuple[Slots, list[Typed | None]]:
    """Phis and slots for carried values, and the scalars they start from."""
    places: list[Typed | CarriedBuffer] = []
    for init in inits:
        if init.type.rank:
            places.append(_slot_for(low, init))
        else:
            places.append(low.blocks.fresh(llvm_element(init.type.elem), "c"))
    return Slots(places), [None if v.type.rank else low.scalar(v).value for v in inits]


def _phis(
    low: CpuLowering,
    header: BasicBlock,
    slots: Slots,
    ways: Sequence[tuple[Sequence[Typed | None], BasicBlock]],
) -> None:
    for index, place in enumerate(slots.values):
        if isinstance(place, Typed):
            incoming = [(v, b) for values, b in ways if (v := values[index]) is not None]
            low.blocks.phi(header, place, incoming)


@statements(control.For)
def lower_for(low: CpuLowering, op: control.For) -> None:
    """Header, body and end; scalars are phis of the header.

    A signed index with a step that is not known to be positive asks for the direction in every iteration. Counted is in
    64 bits, which the last step of an index of 32 does not pass.
    """
    settle_for_region(low, op)
    slots, inits = _inputs(low, op.inits)
    blocks, e = low.blocks, low.e
    lower, upper, step = (low.scalar(v) for v in (op.lower, op.upper, op.step))
    if not isinstance(step.number, int):
        holds = e.compare("ne", step.value, constant(step.value.type, 0))
        require(low, holds, f"the step of the for loop at {op.location} is zero", "")
    extension = "sext" if op.lower.type.scalar.is_signed else "zext"
    first, last, stride = (e.cast(extension, part.value, "i64") for part in (lower, upper, step))
    before = blocks.here
    header, body, after = (blocks.new(n) for n in ("for", "body", "end"))
    blocks.jump(header)
    blocks.enter(header)
    index = blocks.fresh("i64", "i")
    more = _goes_on(low, op, index, last, replace(step, value=stride))
    blocks.branch(more, body, after)
    blocks.enter(body)
    low.live.enter_loop()
    low.live.define(op.body.args)
    seen = e.cast("trunc", index, lower.value.element)
    low.scalars[op.body.args[0]] = Uniform(seen, 0, None, min(lower.divisor, step.divisor))
    slots.bind(low, op.carried)
    following = _region(low, op.body, slots)
    following_index = e.binary("add", index, stride)
    blocks.jump(header)
    latch = blocks.here
    _phis(low, header, slots, [(inits, before), (following, latch)])
    blocks.phi(header, index, [(first, before), (following_index, latch)])
    slots.unbind(low, op.carried)
    low.live.leave_loop()
    blocks.enter(after)
    slots.finish(low, op.results)


def _region(low: CpuLowering, block: Block, slots: Slots) -> list[Typed | None]:
    known = set(low.stored)
    run(low, block)
    end = block.terminator
    scalars = _leave(low, slots, end.operands if isinstance(end, control.Yield) else [])
    _require_own(low, block, known)
    return scalars


def _require_own(low: CpuLowering, block: Block, known: Container[Value]) -> None:
    """Raises IRError where a region, which may not run, has stored a value from outside that is read again later. What
    regions read in memory is stored before them (see :func:`~.pending.settle_for_region`)."""
    for value in low.stored:
        if value not in known and low.plan.home.get(value) is not block and low.live.uses.get(value):
            raise IRError(f"{value!r} is read behind a region that alone has stored it")


def _goes_on(low: CpuLowering, op: control.For, index: Typed, upper: Typed, step: Uniform) -> Typed:
    signed = op.lower.type.scalar.is_signed
    upwards = low.e.compare("slt" if signed else "ult", index, upper)
    if not signed or (isinstance(step.number, int) and step.number > 0):
        return upwards
    downwards = low.e.compare("sgt", index, upper)
    positive = low.e.compare("sgt", step.value, constant(step.value.type, 0))
    return low.e.select(positive, upwards, downwards)


@statements(control.If)
def lower_if(low: CpuLowering, op: control.If) -> None:
    """Two blocks that meet; scalar results are phis there, tiles are written to one slot by both."""
    settle_for_region(low, op)
    blocks = low.blocks
    slots = Slots(
        [_fresh_slot(low, r) if r.type.rank else blocks.fresh(llvm_element(r.type.elem), "r") for r in op.results]
    )
    branches = [blocks.new("then"), blocks.new("else")]
    after = blocks.new("fi")
    blocks.branch(low.scalar(op.condition).value, branches[0], branches[1])
    ways: list[tuple[Sequence[Typed | None], BasicBlock]] = []
    for block, region in zip(branches, (op.then, op.otherwise), strict=True):
        blocks.enter(block)
        values = _region(low, region, slots)
        blocks.jump(after)
        ways.append((values, blocks.here))
    blocks.enter(after)
    _phis(low, after, slots, ways)
    slots.finish(low, op.results)


def _only_waits(op: control.While) -> bool:
    """Whether a loop does nothing but look at memory until another program has changed it."""
    looks = any(isinstance(o, AtomicRMW | AtomicCAS) or (isinstance(o, Load) and o.volatile) for o in op.before.walk())
    return looks and len(op.body.ops) == 1


@statements(control.While)
def lower_while(low: CpuLowering, op: control.While) -> None:
    """The first region is the header: it runs before every test, the body after a true one."""
    settle_for_region(low, op)
    slots, inits = _inputs(low, op.inits)
    blocks = low.blocks
    before = blocks.here
    header, body, after = (blocks.new(n) for n in ("while", "body", "end"))
    blocks.jump(header)
    blocks.enter(header)
    low.live.enter_loop()
    slots.bind(low, op.carried)
    run(low, op.before)
    end = op.before.terminator
    if not isinstance(end, control.Condition):
        raise op.fail("the first region must end in a condition")
    condition = low.scalar(end.condition).value
    passed = _leave(low, slots, end.values)
    slots.unbind(low, op.carried)
    blocks.branch(condition, body, after)
    blocks.enter(body)
    handed = Slots([p if v is None else v for p, v in zip(slots.values, passed, strict=True)])
    handed.bind(low, op.body.args)
    following = _region(low, op.body, slots)
    if _only_waits(op):  # for a program that may need this processor
        low.function.call("i32", "sched_yield", [])
    blocks.jump(header)
    last = blocks.here
    _phis(low, header, slots, [(inits, before), (following, last)])
    handed.unbind(low, op.body.args)
    low.live.leave_loop()
    blocks.enter(after)
    handed.finish(low, op.results)
