"""ldmatrix and stmatrix: a warp moves 8x8 matrices of 16-bit elements between shared memory and fragments.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix" and stmatrix. A matrix is 8 rows of 16 bytes, row
j of matrix m at the address given by lane 8m + j. Lane l holds bytes 4(l % 4) to 4(l % 4) + 3 of row l / 4; with
.trans it holds 16-bit elements 2(l % 4) and 2(l % 4) + 1 of column l / 4. Of bytes such an element is a pair, which
.trans leaves side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ..hardware import LANE_BITS, LANES, VECTOR_BYTES
from .access import element_bytes_of, wavefronts
from .construct import Tiling
from .f2 import LayoutError, span_of
from .linear import Coordinates, Dimension, LinearLayout
from .shared import SharedLayout

#: Matrices of one instruction, as bits of their number (PTX ISA, "ldmatrix": x4).
MATRICES_LOG = 2


@dataclass(frozen=True, slots=True)
class MatrixAccess:
    """ldmatrix or stmatrix instructions that move the registers of a layout.

    Instruction i has ``matrices`` (1, 2 or 4) matrices and ``transposed`` says whether it has .trans. Its 32-bit
    operands, in order, pack the registers ``registers[i]`` (4 / element_bytes each, lowest first); those of loads are
    in order. Every lane gives the byte address base + (``offsets[i]`` XOR lane bases XOR warp bases), as in
    ``SharedAccess``.
    """

    transposed: bool
    matrices: int
    element_bytes: int
    registers: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]

    @property
    def cycles(self) -> int:
        """In which shared memory is busy with all accesses of a warp: each matrix is eight rows."""
        return len(self.offsets) * self.matrices * wavefronts(self.lane[:3], VECTOR_BYTES)

    @property
    def cost(self) -> int:
        """Twice the cycles of a warp plus its instructions."""
        return 2 * self.cycles + len(self.offsets)


@lru_cache(maxsize=4096)
def plan_matrix_access(layout: LinearLayout, shared: SharedLayout, element_bits: int) -> MatrixAccess | None:
    """The ldmatrix (or, where no element has two holders, stmatrix) form of an access, or None.

    None when the layout's fragments are not such matrices, when rows are not 16 contiguous aligned bytes, and when
    a thread holds copies. Raises LayoutError when the shapes differ.
    """
    if layout.shape != shared.shape:
        raise LayoutError(f"register tile {layout.shape} and shared tile {shared.shape} differ")
    inverse = shared.inverse()
    register = [inverse(flat) for flat in layout.flat_register]
    lane = [inverse(flat) for flat in layout.flat_lane]
    warp = [inverse(flat) for flat in layout.flat_warp]
    element_bytes = element_bytes_of(element_bits)
    if len(lane) != LANE_BITS or element_bytes > 4:
        return None
    packed = (4 // element_bytes).bit_length() - 1
    paired = packed - 1
    row = (VECTOR_BYTES // element_bytes).bit_length() - 1
    units = [1 << bit for bit in range(row)]
    if len(register) < packed or len(set(span_of(register))) < 1 << len(register):
        return None
    if register[:packed] + lane[:2] == units:
        transposed, rows = False, lane[2:]
    elif element_bytes <= 2 and register[:paired] + lane[2:] == units:
        transposed, rows = True, [register[paired], *lane[:2]]
    else:
        return None
    if any(offset % (1 << row) for offset in (*rows, *register[packed:], *warp)):
        return None
    inside = min(len(register), packed + MATRICES_LOG)
    matrices = register[packed:inside] + [0] * (packed + MATRICES_LOG - inside)
    starts = range(0, 1 << len(register), 1 << inside)
    return MatrixAccess(
        transposed=transposed,
        matrices=1 << inside - packed,
        element_bytes=element_bytes,
        registers=tuple(tuple(range(start, start + (1 << inside))) for start in starts),
        offsets=tuple(offset * element_bytes for offset in span_of(register[inside:])),
        lane=tuple(offset * element_bytes for offset in (*rows, *matrices)),
        warp=tuple(offset * element_bytes for offset in warp),
    )


@lru_cache(maxsize=4096)
def plan_matrix_store(layout: LinearLayout, shared: SharedLayout, element_bits: int) -> MatrixAccess | None:
    """The stmatrix form of a store, or None: as :func:`plan_matrix_access`, but registers may come in any order, and no
    element may have two holders."""
    if not layout.is_injective:
        return None
    inverse = shared.inverse()
    size = element_bytes_of(element_bits)
    bits = range(len(layout.flat_register))
    order = sorted(bits, key=lambda bit: min(inverse(layout.flat_register[bit]) * size, 4))
    columns = tuple(layout.flat_register[bit] for bit in order) + layout.columns[len(order) :]
    plan = plan_matrix_access(layout.with_columns(layout.shape, columns), shared, element_bits)
    if plan is None:
        return None
    held = span_of([1 << bit for bit in order])
    return replace(plan, registers=tuple(tuple(held[r] for r in group) for group in plan.registers))


def transposing(
    shape: Coordinates, k_axis: int, warps: int, element_bits: int
) -> tuple[LinearLayout, *tuple[LinearLayout, ...]] | None:
    """Registers in which a matrix in shared memory passes from rows along the other axis to rows along ``k_axis``, both
    swizzled, without bank conflicts: the layout that is read, and those that it goes through to the one that is
    written. None for other widths than 8 and 32 bits, and for tiles that are too small.

    Elements of 32 bits are read as vectors of four, each lane at another k, and written as they are.

    Bytes are read by ldmatrix.trans, as pairs of neighbours in words of two k, and written by stmatrix, as words of
    four k. A matrix has eight rows: k 0, 1, 4, 5, 8, 9, 12, 13 on one side, every other one of 16 on the other side, as
    lanes keep their elements; half of them would be in the banks of the other half. So half of the lanes read the pairs
    two k further first, and half write the odd neighbour first: they exchange two of their words.
    """
    other = 1 - k_axis
    taken: list[tuple[Dimension, int, int]]
    if element_bits == 32:
        along_k = min(shape[k_axis], LANES)
        taken = [("register", other, 4), ("lane", k_axis, along_k), ("lane", other, LANES // along_k)]
    else:
        taken = [("register", other, 2), ("register", k_axis, 4), ("lane", k_axis, 4), ("lane", other, 8)]
    pairs = _spread(shape, k_axis, warps, taken) if element_bits in (8, 32) else None
    if pairs is None or element_bits == 32:
        return None if pairs is None else (pairs,)
    n1, k1, k2, *more = pairs.flat_register
    k4, k8, *columns, n8 = pairs.flat_lane
    read = LinearLayout(shape, pairs.flat_register, (k4, k8 ^ k2, *columns, n8), pairs.flat_warp)
    words = LinearLayout(shape, (k1, k2, n1, *more), pairs.flat_lane, pairs.flat_warp)
    written = LinearLayout(shape, words.flat_register, (k4, k8, *columns, n8 ^ n1), pairs.flat_warp)
    return read, pairs, words, written


def _spread(
    shape: Coordinates, k_axis: int, warps: int, taken: Sequence[tuple[Dimension, int, int]]
) -> LinearLayout | None:
    """What is ``taken`` of dimension, axis and count, then warps along the other axis and along K, then registers; None
    where an element would be held twice."""
    other = 1 - k_axis
    tiling = Tiling(shape)
    for dimension, axis, count in taken:
        tiling.take(dimension, axis, count)
    room = shape[other] // prod(count for _, axis, count in taken if axis == other)
    along = min(warps, max(room, 1))
    tiling.take("warp", other, along)
    tiling.take("warp", k_axis, warps // along)
    made = tiling.finish((k_axis, other))
    return made if made.is_injective else None
