"""Records of scopes: one track a warp, written by its first lane.

The warp's clock is read where the scope begins or ends. Instructions that nothing keeps in their place, arithmetic in
registers above all, may be moved across by the assembler; loads, stores, barriers and asynchronous operations are not.
"""

from __future__ import annotations

from ...record_buffer import (
    CLOCK_BITS,
    COUNT,
    FIRST_CLOCK,
    FIRST_NS,
    HEAD_WORDS,
    LAST_CLOCK,
    LAST_NS,
    MASK,
    PROCESSOR,
    TRACK_WORDS,
    WARPS,
    WORD_BYTES,
    record_tag,
)
from ...tile.records import RECORDS, Record
from .lowering import LANE_BITS, LANES, Lowering, WarpTrack, rule


def begin_track(state: Lowering) -> None:
    """Find the warp's track, at the beginning of a kernel that records."""
    parameters = state.source.parameters
    parameter = parameters[-1] if parameters else None
    if parameter is None or parameter.name != RECORDS:
        return
    text, machine = state.text, state.machine
    buffer = text.op(f"ptrtoint ptr addrspace(1) {state.scalar(parameter.value)} to i64")
    mask, warps = (machine.load_word(state, _word(state, buffer, number)) for number in (MASK, WARPS))
    warp = text.op(f"zext i32 {text.op(f'lshr i32 {state.thread}, {LANE_BITS}')} to i64")
    chosen = text.op(f"trunc i64 {text.op(f'lshr i64 {warps}, {warp}')} to i1")
    lane = text.op(f"and i32 {state.thread}, {LANES - 1}")
    writes = text.op(f"and i1 {text.op(f'icmp eq i32 {lane}, 0')}, {chosen}")
    number = text.op(f"mul i64 {_program(state)}, {state.launched_threads // LANES}")
    number = text.op(f"add i64 {number}, {warp}")
    words = text.op(f"mul i64 {number}, {text.op(f'add i64 {mask}, {TRACK_WORDS + 1}')}")
    bytes_ = text.op(f"shl i64 {words}, {WORD_BYTES.bit_length() - 1}")
    start = text.op(f"add i64 {text.op(f'add i64 {buffer}, {bytes_}')}, {WORD_BYTES * HEAD_WORDS}")
    count = text.op("alloca i64")
    text.do(f"store i64 0, ptr {count}")
    track = state.track = WarpTrack(start, mask, count, writes)
    _note(state, track, PROCESSOR, text.op(f"zext i32 {machine.processor(state)} to i64"))
    _note(state, track, FIRST_NS, machine.timer(state))
    _note(state, track, FIRST_CLOCK, machine.clock(state))


def end_track(state: Lowering) -> None:
    """The kernel ends: write how much this warp recorded."""
    track = state.track
    if track is not None:
        _note(state, track, LAST_CLOCK, state.machine.clock(state))
        _note(state, track, LAST_NS, state.machine.timer(state))
        _note(state, track, COUNT, state.text.op(f"load i64, ptr {track.count}"))


@rule(Record)
def _record(state: Lowering, op: Record) -> None:
    track, text = state.track, state.text
    if track is None or op.buffer is None:
        return
    clock = text.op(f"and i64 {state.machine.clock(state)}, {(1 << CLOCK_BITS) - 1}")
    word = text.op(f"or i64 {clock}, {record_tag(op.scope, op.enter)}")
    count = text.op(f"load i64, ptr {track.count}")
    place = text.op(f"shl i64 {text.op(f'and i64 {count}, {track.mask}')}, {WORD_BYTES.bit_length() - 1}")
    address = text.op(f"add i64 {text.op(f'add i64 {track.start}, {place}')}, {WORD_BYTES * TRACK_WORDS}")
    state.machine.store_word(state, address, word, track.writes)
    text.do(f"store i64 {text.op(f'add i64 {count}, 1')}, ptr {track.count}")


def _program(state: Lowering) -> str:
    """The number of the launched program: of a persistent one that of the program that walks, not of its tile."""
    text, machine = state.text, state.machine
    x, y, z = (text.op(f"zext i32 {machine.program_id(state, axis)} to i64") for axis in range(3))
    columns, rows = (text.op(f"zext i32 {machine.num_programs(state, axis)} to i64") for axis in range(2))
    row = text.op(f"add i64 {text.op(f'mul i64 {z}, {rows}')}, {y}")
    return text.op(f"add i64 {text.op(f'mul i64 {row}, {columns}')}, {x}")


def _note(state: Lowering, track: WarpTrack, number: int, value: str) -> None:
    state.machine.store_word(state, _word(state, track.start, number), value, track.writes)


def _word(state: Lowering, start: str, number: int) -> str:
    return state.text.op(f"add i64 {start}, {WORD_BYTES * number}") if number else start
