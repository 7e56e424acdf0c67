"""Records of scopes: one track a program, on the processor's cycle counter.

What a program does with whole tiles element by element is computed where its result is needed (:mod:`.lower`), which
may be behind the scope that it was written in. Loads, stores, products and reductions stay inside.
"""

from __future__ import annotations

from ...ir.core import Function
from ...llvm.text import FunctionText, ModuleText
from ...llvm.typed import Typed, constant
from ...record_buffer import (
    COUNT,
    FIRST_CLOCK,
    FIRST_NS,
    HEAD_WORDS,
    LAST_CLOCK,
    MASK,
    MEASURED_RECORDS,
    RECORD_TICKS,
    TRACK_WORDS,
    WORD_BYTES,
    record_tag,
)
from ...tile.records import Record, first_record
from .lower import CpuLowering, ProgramTrack
from .pending import settle_loads
from .rule_sets import statements

#: A function without arguments that returns the cycle counter: for the launcher, to compare it with its own clock.
CLOCK_SYMBOL = "deuteron_clock"


def begin_track(low: CpuLowering, function: Function) -> ProgramTrack | None:
    """Find the track of the program that begins; None in a kernel that does not record."""
    mark = first_record(function)
    if mark is None or mark.buffer is None:
        return None
    e, buffer = low.e, low.scalar(mark.buffer).value
    mask = e.load("i64", _word(low, buffer, MASK), WORD_BYTES)
    ring = e.binary("mul", e.binary("add", mask, constant("i64", 1)), constant("i64", mark.record_bytes))
    size = e.binary("add", ring, constant("i64", WORD_BYTES * TRACK_WORDS))
    place = e.binary("add", e.binary("mul", low.program, size), constant("i64", WORD_BYTES * HEAD_WORDS))
    track = ProgramTrack(e.offset(buffer, place, "i8"), mask, low.entry_variable("i64"))
    e.store(constant("i64", 0), track.count, WORD_BYTES)
    if mark.measured:
        _measure(low, track, mark)
    e.store(constant("i64", 0), _word(low, track.start, FIRST_NS), WORD_BYTES)
    e.store(_clock(low), _word(low, track.start, FIRST_CLOCK), WORD_BYTES)
    return track


def end_track(low: CpuLowering) -> None:
    """The program has ended: write how much it recorded."""
    track, e = low.track, low.e
    if track is None:
        return
    e.store(_clock(low), _word(low, track.start, LAST_CLOCK), WORD_BYTES)
    e.store(e.load("i64", track.count, WORD_BYTES), _word(low, track.start, COUNT), WORD_BYTES)


@statements(Record)
def record(low: CpuLowering, op: Record) -> None:
    """One word into the ring. Loads that are still to be done come before."""
    settle_loads(low, op)
    if low.track is not None:
        _append(low, low.track, op, record_tag(op.scope, op.enter, op.clock_bits))


def _append(low: CpuLowering, track: ProgramTrack, op: Record, tag: int) -> None:
    e, word = low.e, f"i{8 * op.record_bytes}"
    clock = e.binary("and", _clock(low), constant("i64", (1 << op.clock_bits) - 1))
    made = e.binary("or", clock, constant("i64", tag))
    if op.record_bytes < WORD_BYTES:
        made = e.cast("trunc", made, word)
    count = e.load("i64", track.count, WORD_BYTES)
    ring = _word(low, track.start, TRACK_WORDS)
    e.store(made, e.offset(ring, e.binary("and", count, track.mask), word), op.record_bytes)
    e.store(e.binary("add", count, constant("i64", 1)), track.count, WORD_BYTES)


def _measure(low: CpuLowering, track: ProgramTrack, op: Record) -> None:
    """What records take that are made one after the other. They are not kept."""
    e = low.e
    before = _clock(low)
    for _ in range(MEASURED_RECORDS):
        _append(low, track, op, record_tag(op.scope, op.enter, op.clock_bits))
    taken = e.binary("sub", _clock(low), before)
    e.store(taken, _word(low, track.start, RECORD_TICKS), WORD_BYTES)
    e.store(constant("i64", 0), track.count, WORD_BYTES)


def emit_clock(module: ModuleText) -> None:
    """Add the function :data:`CLOCK_SYMBOL`."""
    text = FunctionText(module, f"define i64 @{CLOCK_SYMBOL}() nounwind")
    text.do(f"ret i64 {_read(text)}")


def _clock(low: CpuLowering) -> Typed:
    # What is written before is done before, as far as LLVM goes; the processor may overlap a few instructions.
    fence = 'call void asm sideeffect "", "~{memory}"()'
    low.function.do(fence)
    clock = Typed("i64", _read(low.function))
    low.function.do(fence)
    return clock


def _read(text: FunctionText) -> str:
    # On ARM the cycle counter is the kernel's; there the timer of the system is what programs may read.
    is_arm = any("aarch64" in line or "arm64" in line for line in text.module.head)
    return text.call("i64", f"llvm.read{'steady' if is_arm else 'cycle'}counter", [])


def _word(low: CpuLowering, start: Typed, number: int) -> Typed:
    return low.e.offset(start, constant("i64", number), "i64")
