"""ldmatrix and stmatrix: a warp moves 8x8 matrices of 16-bit elements between shared memory and fragments.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix" and stmatrix. A matrix is 8 rows of 16 bytes, row
j of matrix m at the address given by lane 8m + j. Lane l holds bytes 4(l % 4) to 4(l % 4) + 3 of row l / 4; with
.trans it holds 16-bit elements 2(l % 4) and 2(l % 4) + 1 of column l / 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..hardware import LANE_BITS, VECTOR_BYTES
from .access import element_bytes_of
from .f2 import LayoutError, span_of
from .linear import LinearLayout
from .shared import SharedLayout

#: Matrices of one instruction, as bits of their number (PTX ISA, "ldmatrix": x4).
MATRICES_LOG = 2


@dataclass(frozen=True, slots=True)
class MatrixAccess:
    """ldmatrix or stmatrix instructions that move the registers of a layout.

    Instruction i has ``matrices`` (1, 2 or 4) matrices and ``transposed`` says whether it has .trans. Its 32-bit
    operands, in order, pack the registers ``registers[i]`` (4 / element_bytes each, lowest first). Every lane gives
    the byte address base + (``offsets[i]`` XOR lane bases XOR warp bases), as in ``SharedAccess``.
    """

    transposed: bool
    matrices: int
    element_bytes: int
    registers: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]


@lru_cache(maxsize=4096)
def plan_matrix_access(layout: LinearLayout, shared: SharedLayout, element_bits: int) -> MatrixAccess | None:
    """The ldmatrix (or, where no element has two holders in a warp, stmatrix) form of an access, or None.

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
    row = (VECTOR_BYTES // element_bytes).bit_length() - 1
    units = [1 << bit for bit in range(row)]
    if len(register) < packed or len(set(span_of(register))) < 1 << len(register):
        return None
    if register[:packed] + lane[:2] == units:
        transposed, rows = False, lane[2:]
    elif element_bytes == 2 and lane[2:] == units:
        transposed, rows = True, [register[0], *lane[:2]]
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
