"""Instruction selection for products: which dots run on tensor cores, and the layouts that this asks for."""

from __future__ import annotations

from dataclasses import dataclass

from ...hardware import LANES, REGISTER_FILE, WARPS_PER_GROUP, threads_of
from ...ir.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, U8, Element
from ...layout import (
    LinearLayout,
    blocked,
    dot_operand,
    double_accumulator,
    double_operand,
    mma_accumulator,
    wgmma_accumulator,
    wgmma_warps,
)
from ...layout.fragments import WGMMA_MAX_N
from ...options import Schedule
from ...target import Target
from ...tile.matmul import Dot

#: Registers of a thread that wgmma needs beside the accumulators of one instruction, or ptxas 13 refuses it (C7602);
#: and where an accumulator takes several instructions, each with its own part of it (C7600: the most that was needed of
#: 64x64 to 512x128 and 8 to 128 columns).
_MORE_REGISTERS, _MORE_IN_TURN = 30, 38


@dataclass(frozen=True, slots=True)
class TensorCore:
    """A chosen instruction with the layouts of accumulator and operands."""

    instruction: str
    accumulator: LinearLayout
    a: LinearLayout
    b: LinearLayout


@dataclass(frozen=True, slots=True)
class WarpGroupCore:
    """wgmma, with the layouts of the accumulator and of an operand A that comes from registers.

    ``columns``: N of one instruction.
    """

    columns: int
    accumulator: LinearLayout
    a: LinearLayout


_EIGHT_BIT_FLOATS = (F8E4M3, F8E5M2)
#: Rows and columns of an mma.sync; and the fewest for which its lanes hold copies, or zeros stand in for rows.
_WHOLE, _LEAST = (16, 8), (1, 2)
#: Rows of one wgmma instruction, fewest columns, and bytes of its K (PTX ISA, "wgmma.mma_async", shapes).
WGMMA_ROWS, WGMMA_LEAST_N, WGMMA_DEPTH_BYTES = 64, 8, 32


def _depth(dot: Dot, elem: Element, target: Target) -> int | None:
    """K of the instruction for operands of ``elem``, None where tensor cores do not give what the dot asks for."""
    if elem in (F16, BF16):
        return 16
    if elem == F32 and dot.precision != "ieee":
        return 8
    if elem in (I8, U8):
        return 32
    if elem in _EIGHT_BIT_FLOATS and "fp8" in target.features:
        return 32
    return None


def choose(dot: Dot, target: Target, warps: int) -> TensorCore | None:
    """The tensor core instruction for ``dot``; None if it has to be done by fused multiply-adds."""
    elem = dot.a.type.scalar
    if elem == F64:
        return _choose_double(dot, target, warps)
    k = _depth(dot, elem, target)
    (m, n), depth = dot.acc.type.shape, dot.a.type.shape[1]
    # Few rows or columns of f32 are multiplied as they are: tensor cores would round them.
    least = _WHOLE if elem == F32 else _LEAST
    if k is None or m < least[0] or n < least[1] or depth < k:
        return None
    counts = _spread(m, n, warps)
    return TensorCore(
        f"m16n8k{k}",
        mma_accumulator((m, n), counts),
        dot_operand((m, depth), 0, counts, elem.bits),
        dot_operand((depth, n), 1, counts, elem.bits),
    )


def _choose_double(dot: Dot, target: Target, warps: int) -> TensorCore | None:
    """The instruction for f64: 8 by 8 by 4 on all architectures, 16 rows and up to 16 k from sm_90 on (PTX ISA, "mma",
    Target ISA Notes). Whatever ``dot`` says of precision, products and sums are those of f64."""
    (m, n), depth = dot.acc.type.shape, dot.a.type.shape[1]
    if m < 8 or n < 8 or depth < 4:
        return None
    large = m >= 16 and target.capability >= 90
    rows, k = (16, min(16, depth)) if large else (8, 4)
    counts = _spread(m, n, warps, rows)
    return TensorCore(
        f"m{rows}n8k{k}",
        double_accumulator((m, n), counts, rows),
        double_operand((m, depth), 0, counts, rows),
        double_operand((depth, n), 1, counts, rows),
    )


def choose_warp_group(dot: Dot, target: Target, schedule: Schedule) -> WarpGroupCore | None:
    """wgmma for ``dot``, if the target has it and the tile is large enough for a group of four warps."""
    elem, warps = dot.a.type.scalar, schedule.num_warps
    (m, n), depth = dot.acc.type.shape, dot.a.type.shape[1]
    if "wgmma" not in target.features or warps < WARPS_PER_GROUP or m < WGMMA_ROWS:
        return None
    fits = elem in (F16, BF16, I8, U8, *_EIGHT_BIT_FLOATS) or (elem == F32 and dot.precision == "tf32")
    counts = wgmma_warps((m, n), warps)
    columns = _columns(n // counts[1], m * n // threads_of(warps), 2 if sums_in_halves(dot) else 1, schedule)
    if not fits or columns < WGMMA_LEAST_N or depth * elem.bytes < WGMMA_DEPTH_BYTES:
        return None
    accumulator = wgmma_accumulator((m, n), counts, columns)
    return WarpGroupCore(columns, accumulator, dot_operand((m, depth), 0, counts, elem.bits))


def _columns(most: int, held: int, per_register: int, schedule: Schedule) -> int:
    """Columns of an instruction, ``most`` at most, for which there are registers; below the fewest that it can have
    where there are none. ``held``: what a thread has of the accumulator, ``per_register`` in one."""
    registers = min(schedule.maxnreg or REGISTER_FILE, REGISTER_FILE // threads_of(schedule.num_warps))
    columns = min(WGMMA_MAX_N, most)
    while columns >= WGMMA_LEAST_N:
        own = columns // 2  # 64 rows of 128 threads
        if own // per_register + (_MORE_REGISTERS if own == held else _MORE_IN_TURN) <= registers:
            break
        columns //= 2
    return columns


def _spread(m: int, n: int, warps: int, rows: int = 16) -> tuple[int, int]:
    """Warps along M and N: halve the longer side of a warp's part, for every operand element is read by fewer warps.
    ``rows``: of an instruction."""
    along_m = along_n = 1
    while along_m * along_n < warps:
        room_m, room_n = m // along_m > rows, n // along_n > 8
        if room_m and (not room_n or m // along_m >= n // along_n):
            along_m *= 2
        elif room_n:
            along_n *= 2
        else:
            along_m *= 2
    return along_m, along_n


def multiply_add_layout(shape: tuple[int, ...], warps: int) -> LinearLayout:
    """The accumulator of a dot without tensor cores: a box of up to 4x4 elements a thread."""
    m, n = shape
    per_thread = max(1, m * n // threads_of(warps))
    wide = min(4, n, per_thread)
    tall = min(4, m, max(1, per_thread // wide))
    lanes_n = min(8, max(1, n // wide))
    lanes_m = LANES // lanes_n
    along_m = min(warps, max(1, m // (tall * lanes_m)))
    return blocked(shape, (tall, wide), (lanes_m, lanes_n), (along_m, warps // along_m))


def accumulator_layout(dot: Dot, target: Target, schedule: Schedule) -> LinearLayout:
    """The layout in which ``dot`` accumulates."""
    warps = schedule.num_warps
    chosen = choose_warp_group(dot, target, schedule) or choose(dot, target, warps)
    return chosen.accumulator if chosen else multiply_add_layout(dot.acc.type.shape, warps)


def sums_in_halves(dot: Dot) -> bool:
    """Whether tensor cores add up in f16, two sums a register: what they do with products of f16 alone. Other products
    whose accumulator is of f16 are added up in f32, and rounded once."""
    return dot.acc.type.elem == dot.a.type.elem == F16
