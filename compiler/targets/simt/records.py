"""Records of scopes: one track a warp.

The warp's clock is read where the scope begins or ends. Instructions that nothing keeps in their place, arithmetic in
registers above all, may be moved across by the assembler; loads, stores, barriers and asynchronous operations are not.

The lanes of a warp keep a record each, by turns, in a register. When all have one they store them at once, so that a
record costs a few instructions, and a store with its way to memory only one record in 32.
"""

from __future__ import annotations

from ...hardware import LANE_BITS, LANES
from ...record_buffer import (
    BLOCK_RECORDS,
    COUNT,
    FIRST_CLOCK,
    HEAD_WORDS,
    LAST_CLOCK,
    MEASURED_RECORDS,
    RECORD_TICKS,
    TRACK_WORDS,
    WORD_BYTES,
    record_tag,
)
from ...tile.records import Record, first_record
from .lowering import Lowering, WarpTrack, rule


def begin_track(state: Lowering) -> None:
    """Find the warp's track, at the beginning of a kernel that records."""
    mark = first_record(state.source)
    if mark is None or mark.buffer is None:
        return
    text, machine = state.text, state.machine
    buffer = text.op(f"ptrtoint ptr addrspace(1) {state.scalar(mark.buffer)} to i64")
    mask, warps = machine.load_words(state, buffer)
    lane = text.op(f"and i32 {state.thread}, {LANES - 1}")
    warp = text.op(f"lshr i32 {state.thread}, {LANE_BITS}")
    chosen = text.op(f"lshr i64 {warps}, {text.op(f'zext i32 {warp} to i64')}")
    # A buffer has less than 2**31 bytes.
    last = text.op(f"trunc i64 {mask} to i32")
    size = text.op(f"mul i32 {last}, {mark.record_bytes}")
    size = text.op(f"add i32 {size}, {WORD_BYTES * TRACK_WORDS + mark.record_bytes}")
    number = text.op(f"add i32 {text.op(f'mul i32 {_program(state)}, {state.launched_threads // LANES}')}, {warp}")
    place = text.op(f"mul i32 {number}, {size}")
    place = text.op(f"add i32 {place}, {text.op(f'mul i32 {lane}, {mark.record_bytes}')}")
    start = text.op(f"add i64 {buffer}, {text.op(f'zext i32 {place} to i64')}")
    word = f"i{8 * mark.record_bytes}"
    state.track = WarpTrack(
        word,
        mark.record_bytes,
        _further(state, start, WORD_BYTES * HEAD_WORDS),
        text.op(f"and i32 {last}, {-BLOCK_RECORDS}"),
        lane,
        text.op(f"trunc i64 {chosen} to i1"),
        text.op("alloca i32"),
        text.op(f"alloca {word}"),
    )
    text.do(f"store {word} 0, ptr {state.track.kept}")
    if mark.measured:
        _measure(state, state.track, mark)
    text.do(f"store i32 0, ptr {state.track.count}")
    _note(state, state.track, FIRST_CLOCK, [machine.clock(state, "i64"), machine.timer(state)])


def end_track(state: Lowering) -> None:
    """The kernel ends: store what no block has taken yet, and how much this warp recorded."""
    track, text, machine = state.track, state.text, state.machine
    if track is None:
        return
    times = [machine.clock(state, "i64"), machine.timer(state)]
    count = text.op(f"load i32, ptr {track.count}")
    kept = text.op(f"icmp ult i32 {track.lane}, {text.op(f'and i32 {count}, {LANES - 1}')}")
    _store_block(state, track, count, text.op(f"and i1 {kept}, {track.chosen}"))
    _note(state, track, LAST_CLOCK, times)
    _note(state, track, COUNT, [text.op(f"zext i32 {n} to i64") for n in (count, machine.sm_number(state))])


@rule(Record)
def _record(state: Lowering, op: Record) -> None:
    if state.track is not None and op.buffer is not None:
        _append(state, state.track, op, record_tag(op.scope, op.enter, op.clock_bits))


def _append(state: Lowering, track: WarpTrack, op: Record, tag: int) -> None:
    """The lane whose turn it is keeps the record; behind the last lane all of them store theirs."""
    text = state.text
    count = text.op(f"load i32, ptr {track.count}")
    turn = text.op(f"and i32 {count}, {LANES - 1}")
    mine = text.op(f"icmp eq i32 {turn}, {track.lane}")
    clock = text.op(f"and {track.word} {state.machine.clock(state, track.word)}, {(1 << op.clock_bits) - 1}")
    record = text.op(f"or {track.word} {clock}, {tag}")
    kept = text.op(f"load {track.word}, ptr {track.kept}")
    kept = text.op(f"select i1 {mine}, {track.word} {record}, {track.word} {kept}")
    text.do(f"store {track.word} {kept}, ptr {track.kept}")
    full = text.op(f"icmp eq i32 {turn}, {LANES - 1}")
    _store_block(state, track, count, text.op(f"and i1 {full}, {track.chosen}"))
    text.do(f"store i32 {text.op(f'add i32 {count}, 1')}, ptr {track.count}")


def _store_block(state: Lowering, track: WarpTrack, number: str, predicate: str) -> None:
    """Each lane stores what it keeps into the block of the record ``number``."""
    text = state.text
    block = text.op(f"zext i32 {text.op(f'and i32 {number}, {track.blocks}')} to i64")
    place = text.op(f"add i64 {track.start}, {text.op(f'mul i64 {block}, {track.record_bytes}')}")
    kept = text.op(f"load {track.word}, ptr {track.kept}")
    address = _further(state, place, WORD_BYTES * TRACK_WORDS)
    state.machine.store_words(state, address, track.word, [kept], predicate)


def _measure(state: Lowering, track: WarpTrack, op: Record) -> None:
    """What records take that are made one after the other, at least: none of them fills a block. They are not kept."""
    text, machine = state.text, state.machine
    before = machine.clock(state, "i64")
    # Zero, but compilers do not know it, or they would keep what they compute of turns for the kernel's own records.
    zero = text.op(f"trunc i64 {text.op(f'lshr i64 {before}, 63')} to i32")
    text.do(f"store i32 {zero}, ptr {track.count}")
    for _ in range(MEASURED_RECORDS):
        _append(state, track, op, record_tag(op.scope, op.enter, op.clock_bits))
    taken = text.op(f"sub i64 {machine.clock(state, 'i64')}, {before}")
    _note(state, track, RECORD_TICKS, [taken])


def _program(state: Lowering) -> str:
    """The number of the launched program (i32): of a persistent one that of the program that walks, not of its tile."""
    text, machine = state.text, state.machine
    x, y, z = (machine.program_id(state, axis) for axis in range(3))
    columns, rows = (machine.num_programs(state, axis) for axis in range(2))
    row = text.op(f"add i32 {text.op(f'mul i32 {z}, {rows}')}, {y}")
    return text.op(f"add i32 {text.op(f'mul i32 {row}, {columns}')}, {x}")


def _note(state: Lowering, track: WarpTrack, number: int, values: list[str]) -> None:
    """The first lane, which is at the track's first word, stores ``values`` (i64) from the word ``number`` on."""
    first = state.text.op(f"icmp eq i32 {track.lane}, 0")
    predicate = state.text.op(f"and i1 {first}, {track.chosen}")
    state.machine.store_words(state, _further(state, track.start, WORD_BYTES * number), "i64", values, predicate)


def _further(state: Lowering, address: str, count: int) -> str:
    return state.text.op(f"add i64 {address}, {count}") if count else address
