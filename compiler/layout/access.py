"""How the threads of a register layout reach shared memory: offsets, vectors, bank conflicts.

Byte offsets are XORs of lane bases, warp bases and one constant per instruction, because everything is linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..hardware import BANK_BYTES, BANKS, VECTOR_BYTES, WAVE_BYTES
from .f2 import Echelon, LayoutError, span_of
from .linear import LinearLayout
from .shared import SharedLayout


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """Loads or stores that move the registers of a layout from or to shared memory.

    Access i moves ``registers[i]`` (``vector`` of them, in address order) at byte offset
    ``offsets[i] ^ XOR of lane[b] over the set bits of the lane index ^ the same of warp``; the base address of
    the buffer is added last. Copies within a thread are left out: register r holds the same element as register
    ``canonical[r]``, and only canonical registers occur in ``registers``.
    """

    vector: int
    element_bytes: int
    registers: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    canonical: tuple[int, ...]

    @property
    def vector_bytes(self) -> int:
        """Bytes that one lane moves per access."""
        return self.vector * self.element_bytes

    @property
    def cycles(self) -> int:
        """In which shared memory is busy with all accesses of a warp."""
        return len(self.offsets) * wavefronts(self.lane, self.vector_bytes)

    @property
    def cost(self) -> int:
        """Twice the cycles of a warp plus its instructions."""
        return 2 * self.cycles + len(self.offsets)

    @property
    def thread_mask(self) -> int:
        """Offset bits that lanes or warps set; the other bits of a constant may be an immediate that is added."""
        mask = 0
        for basis in self.lane + self.warp:
            mask |= basis
        return mask

    def split_offset(self, access: int) -> tuple[int, int]:
        """(part to XOR into the thread's offset, part to add afterwards as an immediate), in bytes."""
        mask = self.thread_mask
        return self.offsets[access] & mask, self.offsets[access] & ~mask


def build_access(register: Sequence[int], lane: Sequence[int], warp: Sequence[int], element_bytes: int) -> SharedAccess:
    """The access plan for element offsets given by one basis per register, lane and warp bit."""
    positions = span_of(register)
    present = set(positions)
    thread_bits = 0
    for basis in (*lane, *warp):
        thread_bits |= basis
    vector_log = 0
    while (
        element_bytes << vector_log < VECTOR_BYTES and not thread_bits >> vector_log & 1 and 1 << vector_log in present
    ):
        vector_log += 1
    first: dict[int, int] = {}
    for index, position in enumerate(positions):
        first.setdefault(position, index)
    groups: dict[int, list[int]] = {}
    for position in positions:
        groups.setdefault(position >> vector_log, [])
    for high, members in groups.items():
        members += [first[high << vector_log | low] for low in range(1 << vector_log)]
    return SharedAccess(
        vector=1 << vector_log,
        element_bytes=element_bytes,
        registers=tuple(tuple(members) for members in groups.values()),
        offsets=tuple((high << vector_log) * element_bytes for high in groups),
        lane=tuple(basis * element_bytes for basis in lane),
        warp=tuple(basis * element_bytes for basis in warp),
        canonical=tuple(first[position] for position in positions),
    )


def element_bytes_of(element_bits: int) -> int:
    """Bytes of one element in shared memory: booleans take a byte."""
    return max(8, element_bits) // 8


@lru_cache(maxsize=4096)
def plan_shared_access(layout: LinearLayout, shared: SharedLayout, element_bits: int) -> SharedAccess:
    """How the threads of ``layout`` load or store a tile that lies in shared memory as ``shared``.

    Raises LayoutError when the shapes differ.
    """
    if layout.shape != shared.shape:
        raise LayoutError(f"register tile {layout.shape} and shared tile {shared.shape} differ")
    inverse = shared.inverse()
    return build_access(
        [inverse(flat) for flat in layout.flat_register],
        [inverse(flat) for flat in layout.flat_lane],
        [inverse(flat) for flat in layout.flat_warp],
        element_bytes_of(element_bits),
    )


def wave_lane_bits(bytes_per_lane: int) -> int:
    """Lane bits that go together: all 5 for up to 4 bytes a lane, 4 (half warps) for 8, 3 for 16."""
    return (WAVE_BYTES // max(BANK_BYTES, bytes_per_lane)).bit_length() - 1


def wavefronts(lane: Sequence[int], vector_bytes: int) -> int:
    """Cycles of one warp-wide access with the given byte offset per lane bit.

    A group of lanes (see ``wave_lane_bits``) moves up to 128 bytes a cycle and takes as many cycles as its
    busiest bank has distinct words; by linearity all banks that are hit, all groups, all warps and all constants
    have the same number.
    """
    together = min(len(lane), wave_lane_bits(vector_bytes))
    words = [offset // BANK_BYTES for offset in lane[:together]]
    words += [1 << bit for bit in range((vector_bytes // BANK_BYTES).bit_length() - 1)]
    distinct = len(Echelon(words))
    banks = len(Echelon(word % BANKS for word in words))
    return 1 << (len(lane) - together) + distinct - banks


def needed_wavefronts(lane_bits: int, vector_bytes: int) -> int:
    """Cycles of one warp-wide access without bank conflicts."""
    return 1 << max(0, lane_bits - wave_lane_bits(vector_bytes))


def bank_conflicts(access: SharedAccess) -> int:
    """Cycles of one warp-wide access beyond those its bytes need; the same for every access of the plan."""
    cycles = wavefronts(access.lane, access.vector_bytes)
    return cycles - needed_wavefronts(len(access.lane), access.vector_bytes)
