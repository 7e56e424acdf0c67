"""How many programs fit on a processor of a GPU at once, and what keeps more from fitting.

Limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; how registers and
shared memory are handed out is as in NVIDIA's occupancy calculator (registers by the warp, 256 at a time, warps by
fours; one KiB of shared memory a block for the system).
"""

from __future__ import annotations

from dataclasses import dataclass

from deuteron.compiler.target import Target

_WARP = 32
_REGISTERS = 65_536
_REGISTER_UNIT = 256
_WARP_UNIT = 4
_SHARED_UNIT = 128
_SYSTEM_SHARED = 1024


@dataclass(frozen=True, slots=True)
class ProcessorLimits:
    """What one streaming multiprocessor has: resident warps and blocks, and bytes of shared memory."""

    warps: int
    blocks: int
    shared_bytes: int


#: By compute capability times ten.
LIMITS = {
    80: ProcessorLimits(64, 32, 164 * 1024),
    86: ProcessorLimits(48, 16, 100 * 1024),
    89: ProcessorLimits(48, 24, 100 * 1024),
    90: ProcessorLimits(64, 32, 228 * 1024),
    100: ProcessorLimits(64, 32, 228 * 1024),
    120: ProcessorLimits(48, 24, 100 * 1024),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """``blocks`` of one program each are resident on a processor; ``limits``: how many each resource would allow."""

    blocks: int
    warps: int
    most_warps: int
    limits: dict[str, int]

    @property
    def share(self) -> float:
        """Resident warps, of those that the processor can hold."""
        return self.warps / self.most_warps

    @property
    def limiter(self) -> str:
        """The resource that runs out first."""
        return min(self.limits, key=self.limits.__getitem__)


def occupancy(target: Target, *, threads: int, registers: int | None, shared_bytes: int) -> Occupancy | None:
    """The occupancy of a kernel by threads of a block, registers of a thread (None: not known) and shared memory of a
    block; None for a target whose limits are not known."""
    limits = LIMITS.get(target.capability)
    if limits is None:
        return None
    warps = -(-threads // _WARP)
    fits = {"warps": limits.warps // warps, "blocks": limits.blocks}
    if registers:
        each = _up(registers * _WARP, _REGISTER_UNIT)
        fits["registers"] = _REGISTERS // each // _WARP_UNIT * _WARP_UNIT // warps
    needed = _up(shared_bytes + _SYSTEM_SHARED, _SHARED_UNIT)
    fits["shared memory"] = limits.shared_bytes // needed
    blocks = min(fits.values())
    return Occupancy(blocks, blocks * warps, limits.warps, fits)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
