"""How many blocks of a kernel a multiprocessor holds at once, and what keeps it from holding more.

Limits per compute capability are those of :mod:`deuteron.compiler.target`; how registers and shared memory are handed
out is what ``cuda_occupancy.h`` of the toolkit computes. For an architecture that is not in the table nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from deuteron.compiler.hardware import LANES
from deuteron.compiler.target import LIMITS, MultiprocessorLimits

#: What runs out first: "blocks" and "threads" are the multiprocessor's own limits.
Limiter: TypeAlias = Literal["registers", "shared memory", "threads", "blocks"]


@dataclass(frozen=True)
class Occupancy:
    """``blocks`` of one kernel that a multiprocessor holds, their ``warps``, of ``most_warps`` that it could hold."""

    blocks: int
    warps: int
    most_warps: int
    limiter: Limiter


def occupancy(arch: str, *, threads: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """The occupancy of blocks of ``threads`` with so many ``registers`` a thread and bytes of shared memory a block.

    ``arch``: a compute capability without its dot, such as "90". None where its limits are not known, or where not even
    one block fits.
    """
    limits = LIMITS.get(arch)
    if limits is None or threads < 1:
        return None
    warps = -(-threads // LANES)
    fitting: list[tuple[int, Limiter]] = [
        (limits.blocks, "blocks"),
        (limits.warps // warps, "threads"),
        (limits.warps_with(registers) // warps, "registers"),
        (limits.shared_bytes // _shared_of_a_block(limits, shared_bytes), "shared memory"),
    ]
    blocks, limiter = min(fitting, key=lambda pair: pair[0])
    return None if blocks == 0 else Occupancy(blocks, blocks * warps, limits.warps, limiter)


def _shared_of_a_block(limits: MultiprocessorLimits, shared_bytes: int) -> int:
    asked = shared_bytes + limits.reserved_bytes
    return max(1, -(-asked // limits.shared_unit) * limits.shared_unit)
