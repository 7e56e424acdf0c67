"""Register layouts that tensor core instructions prescribe.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and its siblings for m16n8k8,
m16n8k32 and m8n8k4, and "Register Fragments and Shared Memory Matrix Layouts" of wgmma.mma_async. With g = lane / 4 and
t = lane % 4 they all say: a 32-bit register holds v = 32 / bits consecutive elements along K (or two
consecutive columns of D), t selects the register along that axis, g the row of A and D or the column of B. f64 has a
64-bit register for each element of A, B and D.

A tile larger than the instruction is first spread over warps (M fastest in the warp number, then N, then batch),
then repeated in registers. The last two dimensions are the matrix; earlier ones are batch dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from ..hardware import WARPS_PER_GROUP
from .construct import Tiling
from .f2 import LayoutError, log2_exact
from .linear import Coordinates, LinearLayout, flatten, unflatten

#: Columns of the widest wgmma.
WGMMA_MAX_N = 256


def _check(what: str, shape: Coordinates, warps: Coordinates, minimum: tuple[int, int]) -> None:
    if len(shape) < 2 or len(warps) != len(shape):
        raise LayoutError(f"{what}: shape {shape} and warps {warps} must have the same rank >= 2")
    if shape[-2] < minimum[0] or shape[-1] < minimum[1]:
        raise LayoutError(
            f"{what}: tile {shape} is smaller than the instruction's {minimum[0]}x{minimum[1]}",
            hint="use larger blocks, or compute this dot without tensor cores",
        )


def mma_accumulator(shape: Sequence[int], warps_per_cta: Sequence[int]) -> LinearLayout:
    """C and D of mma.sync m16n8kK with 32-bit elements: c0,c1 at row g, columns 2t and 2t+1; c2,c3 at row g+8.

    Registers: 4 of one instruction, then instructions along N, then along M, then batch. Of fewer than 16 rows there
    are c0 and c1 alone; lanes without a row or columns of their own hold copies.
    Raises LayoutError when the tile has one column.
    """
    return _mma_accumulator(tuple(shape), tuple(warps_per_cta))


@lru_cache(maxsize=1024)
def _mma_accumulator(shape: Coordinates, warps: Coordinates) -> LinearLayout:
    _check("mma accumulator", shape, warps, (1, 2))
    m, n = len(shape) - 2, len(shape) - 1
    tiling = Tiling(shape)
    _one_accumulator(tiling, m, n, 16)
    _spread_warps(tiling, warps, m, n)
    return tiling.finish(tuple(reversed(range(len(shape)))))


def _one_accumulator(tiling: Tiling, m: int, n: int, rows: int) -> None:
    tiling.take("register", n, 2)
    tiling.take("lane", n, 4)
    tiling.take("lane", m, 8)
    tiling.take("register", m, rows // 8)


def _spread_warps(tiling: Tiling, warps: Coordinates, m: int | None, n: int | None) -> None:
    """Warps along M, then N, then batch; None for an axis that the operand does not have."""
    for axis, count in ((m, warps[-2]), (n, warps[-1])):
        if axis is None:
            tiling.broadcast("warp", count)
        else:
            tiling.take("warp", axis, count)
    for axis in reversed(range(len(warps) - 2)):
        tiling.take("warp", axis, warps[axis])


def dot_operand(
    shape: Sequence[int], operand: Literal[0, 1], warps_per_cta: Sequence[int], element_bits: int
) -> LinearLayout:
    """A (operand 0, shape M x K) or B (operand 1, shape K x N) of mma.sync for an ``mma_accumulator`` parent.

    ``element_bits``: 16 (m16n8k16), 32 (tf32, m16n8k8) or 8 (m16n8k32). ``warps_per_cta`` is the parent's.
    Registers come in the order of the instruction's .b32 operands: v = 32 / bits consecutive registers make one
    operand, 4v registers one A fragment and 2v one B fragment; further fragments follow along K, then along M
    (A) or N (B), then batch. A of wgmma from registers is the same layout with warps (4 or more, ...). Of fewer than
    16 rows A has half the registers; lanes without a row or column of their own hold copies.
    Raises LayoutError for other widths, and for tiles with fewer k than the instruction.
    """
    return _dot_operand(tuple(shape), operand, tuple(warps_per_cta), element_bits)


@lru_cache(maxsize=1024)
def _dot_operand(shape: Coordinates, operand: int, warps: Coordinates, bits: int) -> LinearLayout:
    if bits not in (8, 16, 32):
        raise LayoutError(f"mma.sync has no {bits}-bit operands here", hint="use 8, 16 or 32 bits")
    packed = 32 // bits
    tiling = Tiling(shape)
    if operand == 0:
        _check("mma operand A", shape, warps, (1, 8 * packed))
        outer, k = len(shape) - 2, len(shape) - 1
    else:
        _check("mma operand B", shape, warps, (8 * packed, 2))
        k, outer = len(shape) - 2, len(shape) - 1
    tiling.take("register", k, packed)
    tiling.take("lane", k, 4)
    tiling.take("lane", outer, 8)
    if operand == 0:
        tiling.take("register", outer, 2)
    tiling.take("register", k, 2)
    _spread_warps(tiling, warps, outer if operand == 0 else None, outer if operand == 1 else None)
    return tiling.finish((k, outer, *reversed(range(len(shape) - 2))))


def double_accumulator(shape: Sequence[int], warps_per_cta: Sequence[int], rows: int) -> LinearLayout:
    """C and D of mma.sync with f64 elements in instructions of ``rows`` (8 or 16) by 8: registers as in
    ``mma_accumulator``, c2 and c3 only of 16 rows; rows and columns as ``double_operand`` has them.

    Raises LayoutError when the tile, a matrix, is smaller than the instruction.
    """
    return _double_accumulator(tuple(shape), tuple(warps_per_cta), rows)


@lru_cache(maxsize=1024)
def _double_accumulator(shape: Coordinates, warps: Coordinates, rows: int) -> LinearLayout:
    _check("mma accumulator", shape, warps, (rows, 8))
    tiling = Tiling(shape)
    _one_accumulator(tiling, 0, 1, rows)
    _spread_warps(tiling, warps, 0, 1)
    return _without_conflicts(tiling.finish((1, 0)))


def double_operand(
    shape: Sequence[int], operand: Literal[0, 1], warps_per_cta: Sequence[int], rows: int
) -> LinearLayout:
    """A (operand 0, shape M x K) or B (operand 1, shape K x N) of mma.sync with f64 elements, K of 4 or more.

    Registers come in the order of the instruction's operands, ``rows / 8`` of A and one of B for four k; further ones
    follow along K, then along M (A) or N (B). Rows, columns and k are those of the instruction with two bits exchanged,
    in both operands and the accumulator, so that the product is the same: threads that read 8 bytes each would have
    bank conflicts in swizzled rows of 128 bytes, along whichever axis they are.
    Raises LayoutError when the tile, a matrix, is smaller than the instruction.
    """
    return _double_operand(tuple(shape), operand, tuple(warps_per_cta), rows)


@lru_cache(maxsize=1024)
def _double_operand(shape: Coordinates, operand: int, warps: Coordinates, rows: int) -> LinearLayout:
    _check(f"mma operand {'AB'[operand]}", shape, warps, ((rows, 4), (4, 8))[operand])
    outer, k = operand, 1 - operand
    tiling = Tiling(shape)
    tiling.take("lane", k, 4)
    tiling.take("lane", outer, 8)
    if operand == 0:
        tiling.take("register", outer, rows // 8)
    tiling.take("register", k, shape[k] // 4)
    _spread_warps(tiling, warps, outer if operand == 0 else None, outer if operand == 1 else None)
    return _without_conflicts(tiling.finish((k, outer)))


def _without_conflicts(layout: LinearLayout) -> LinearLayout:
    """``layout`` with the steps of 2 and 4 along each axis exchanged."""

    def exchanged(flat: int) -> int:
        steps = unflatten(layout.shape, flat)
        turned = ({2: 4, 4: 2}.get(x, x) if size >= 8 else x for x, size in zip(steps, layout.shape, strict=True))
        return flatten(layout.shape, tuple(turned))

    register, lane, warp = (
        tuple(map(exchanged, bases)) for bases in (layout.flat_register, layout.flat_lane, layout.flat_warp)
    )
    return LinearLayout(layout.shape, register, lane, warp)


def wgmma_warps(shape: Sequence[int], warps: int) -> tuple[int, int]:
    """How wgmma spreads ``warps`` over M and N: groups of 4 along M while 16 rows a warp remain, then N.

    Raises LayoutError unless ``warps`` is a power of two and at least 4.
    """
    log2_exact(warps, "warps")
    if warps < WARPS_PER_GROUP:
        raise LayoutError(f"wgmma needs a warp group of 4 warps, not {warps}")
    along_m = WARPS_PER_GROUP
    while along_m < warps and shape[-2] > 16 * along_m:
        along_m *= 2
    return along_m, warps // along_m


def wgmma_accumulator(
    shape: Sequence[int], warps: int | Sequence[int], instruction_n: int | None = None
) -> LinearLayout:
    """D of wgmma m64nNkK with 32-bit elements: warp w of a group has rows 16w to 16w+15, each as m16n8 times N/8.

    ``warps``: a total (spread by ``wgmma_warps``) or (along M, a multiple of 4; along N). ``instruction_n``:
    columns of one instruction, default as many as fit (at most 256). Registers: those of one instruction in
    the order of its operands, then instructions along N, then along M. Raises LayoutError for tiles smaller than
    64 x 8, fewer than 4 warps along M, and an ``instruction_n`` outside 8..256.
    """
    counts = wgmma_warps(shape, warps) if isinstance(warps, int) else (warps[0], warps[1])
    if instruction_n is None:
        instruction_n = max(8, min(WGMMA_MAX_N, shape[-1] // counts[1]))
    return _wgmma_accumulator(tuple(shape), counts, instruction_n)


@lru_cache(maxsize=1024)
def _wgmma_accumulator(shape: Coordinates, warps: tuple[int, int], instruction_n: int) -> LinearLayout:
    _check("wgmma accumulator", shape, warps, (64, 8))
    if warps[0] % WARPS_PER_GROUP:
        raise LayoutError(f"wgmma needs a multiple of 4 warps along M, not {warps}")
    if not 8 <= instruction_n <= min(WGMMA_MAX_N, shape[1]):
        raise LayoutError(f"wgmma has no n{instruction_n} for a tile of {shape}")
    tiling = Tiling(shape)
    _one_accumulator(tiling, 0, 1, 16)
    tiling.take("register", 1, instruction_n // 8)
    _spread_warps(tiling, warps, 0, 1)
    return tiling.finish((1, 0))
