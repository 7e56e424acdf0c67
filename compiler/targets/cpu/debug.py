"""Printing and assertions: records that the launcher turns into text and errors."""

from __future__ import annotations

from ...ir.core import Value
from ...llvm.typed import Typed, constant
from ...tile import debug
from .chunk import Coords
from .emission import Emission
from .lower import CpuLowering
from .memory import when
from .nests import for_each_chunk, materialise
from .rule_sets import buffers, statements

#: The status block of one thread: i64 failed assertion (0: none), i64 program, pointer to the print callback.
STATUS_BYTES = 24


@statements(debug.Assume)
def assume(low: CpuLowering, op: debug.Assume) -> None:
    condition = low.scalar(op.condition).value
    low.function.call("void", "llvm.assume", [("i1", condition.name)])


@statements(debug.Assert)
def lower_assert(low: CpuLowering, op: debug.Assert) -> None:
    """As :func:`require`, of all elements."""
    require(low, _all_true(low, op), op.message, str(op.location) if op.location else "")


def require(low: CpuLowering, holds: Typed, message: str, place: str) -> None:
    """What does not hold ends the thread's run, the first time; the launcher stops the others and raises."""
    low.messages.append((message, place))
    failed, after = low.blocks.new("failed"), low.blocks.new("holds")
    low.blocks.branch(holds, after, failed)
    low.blocks.enter(failed)
    low.e.store(constant("i64", len(low.messages)), low.status, 8)
    low.e.store(low.program, low.e.offset(low.status, Typed("i64", "8"), "i8"), 8)
    low.function.do("ret void")
    low.blocks.enter(after)


def _all_true(low: CpuLowering, op: debug.Assert) -> Typed:
    if not op.condition.type.rank:
        return low.scalar(op.condition).value
    # A byte in scratch memory collects the verdict, so that any loop over the tile will do.
    verdict = low.arena.allocate(1)
    place = low.e.offset(low.scratch, Typed("i64", str(verdict.offset)), "i8")
    low.e.store(constant("i8", 1), place, 1)

    def body(emission: Emission, coords: Coords) -> None:
        condition = emission.vector(op.condition, coords)
        with emission.nest.at(emission.nest.depth):
            if condition.lanes:
                name = f"llvm.vector.reduce.and.v{condition.lanes}i1"
                made = low.function.call("i1", name, [(condition.type, condition.name)])
                condition = Typed("i1", made)
            false = low.e.binary("xor", condition, Typed("i1", "true"))
            when(low, false, lambda: low.e.store(constant("i8", 0), place, 1))

    tile_shape = op.condition.type.shape
    lanes = low.lanes(tile_shape, op.condition.type.elem)
    for_each_chunk(low, [(op.condition, True)], tile_shape, lanes, body)
    low.arena.free(verdict)
    return low.e.compare("ne", low.e.load("i8", place, 1), constant("i8", 0))


@buffers(debug.Print)
def printed(op: debug.Print) -> tuple[Value, ...]:
    """All that is printed."""
    return op.values


@statements(debug.Print)
def lower_print(low: CpuLowering, op: debug.Print) -> None:
    """Call back with the address of each value; tiles are row-major in scratch memory."""
    slots = low.arena.allocate(8 * max(1, len(op.values)))
    table = low.e.offset(low.scratch, Typed("i64", str(slots.offset)), "i8")
    aside = []
    for index, value in enumerate(op.values):
        if value.type.rank:
            buffer = materialise(low, value).buffer
        else:
            buffer = low.arena.allocate(8)
            aside.append(buffer)
        place = low.e.offset(low.scratch, Typed("i64", str(buffer.offset)), "i8")
        if not value.type.rank:
            held = low.scalar(value).value
            held = low.e.cast("zext", held, "i8") if held.type == "i1" else held
            low.e.store(held, place, 8)
        low.e.store(place, low.e.offset(table, Typed("i64", str(8 * index)), "i8"), 8)
    callback = low.e.load("ptr", low.e.offset(low.status, Typed("i64", "16"), "i8"), 8)
    low.function.do(f"call void {callback.name}(i64 {len(low.prints)}, {low.program}, ptr {table.name})")
    low.prints.append(op)
    for buffer in (slots, *aside):
        low.arena.free(buffer)
