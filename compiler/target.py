"""What a variant is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .errors import TargetError
from .hardware import LANES, REGISTER_FILE

KIB = 1024
#: Registers of a warp are given in such units, by one of so many parts of a multiprocessor.
REGISTER_UNIT, PARTITIONS = 256, 4


@dataclass(frozen=True)
class MultiprocessorLimits:
    """What one streaming multiprocessor (SM) has. ``blocks``: CTAs at most; ``shared_bytes``: for all its CTAs;
    ``reserved_bytes``: of each one's for the system; ``shared_unit``: in which it is handed out."""

    blocks: int
    warps: int
    shared_bytes: int
    registers: int = REGISTER_FILE
    reserved_bytes: int = KIB
    shared_unit: int = 128

    def warps_with(self, registers: int) -> int:
        """Warps whose threads have so many ``registers`` each that it holds at the same time, as ``cuda_occupancy.h``
        of the toolkit computes it: they are handed out to warps in units, and belong to one of four parts."""
        if registers < 1:
            return self.warps
        of_a_warp = -(-registers * LANES // REGISTER_UNIT) * REGISTER_UNIT
        return min(self.warps, self.registers // PARTITIONS // of_a_warp * PARTITIONS)


#: By compute capability without its dot, also of GPUs that nothing is compiled for (the same table, of version 13.0).
LIMITS = {
    "70": MultiprocessorLimits(32, 64, 96 * KIB, reserved_bytes=0, shared_unit=256),
    "72": MultiprocessorLimits(32, 64, 96 * KIB, reserved_bytes=0, shared_unit=256),
    "75": MultiprocessorLimits(16, 32, 64 * KIB, reserved_bytes=0, shared_unit=256),
    "80": MultiprocessorLimits(32, 64, 164 * KIB),
    "86": MultiprocessorLimits(16, 48, 100 * KIB),
    "87": MultiprocessorLimits(16, 48, 164 * KIB),
    "89": MultiprocessorLimits(24, 48, 100 * KIB),
    "90": MultiprocessorLimits(32, 64, 228 * KIB),
    "100": MultiprocessorLimits(32, 64, 228 * KIB),
    "103": MultiprocessorLimits(32, 64, 228 * KIB),
    "110": MultiprocessorLimits(24, 48, 228 * KIB),
    "120": MultiprocessorLimits(24, 48, 100 * KIB),
    "121": MultiprocessorLimits(24, 48, 100 * KIB),
}


@dataclass(frozen=True)
class Architecture:
    """What code for one ``sm_`` name may use.

    ``ptx_version``: times ten, the oldest that has what the code generator uses, so that the assembler of an old
    toolkit or driver accepts the code: eviction priorities need 7.4, fp8 on sm_89 8.4 (PTX ISA, release notes). Code
    with assembly of its author's says the newest that the assembler reads.

    ``features``: what the instruction set has. ``cp.async``: asynchronous copies by threads; ``tma``: the copy engine
    with mbarriers; ``wgmma``: products of warp groups; ``setmaxnreg``: registers that move between warp groups;
    ``fp8``: 8-bit floats in mma.sync; ``griddepcontrol``: kernels that begin before the one before them has ended;
    ``vector_atomics``: additions to several neighbours in memory at once (PTX ISA, "Target ISA Notes" of each
    instruction).
    """

    limits: MultiprocessorLimits
    ptx_version: int
    features: frozenset[str]


_HOPPER = frozenset({"cp.async", "fp8", "griddepcontrol", "tma", "vector_atomics"})

#: By the name behind ``sm_``: what kernels are compiled for.
ARCHITECTURES: dict[str, Architecture] = {
    "80": Architecture(LIMITS["80"], 74, frozenset({"cp.async"})),
    "86": Architecture(LIMITS["86"], 74, frozenset({"cp.async"})),
    "87": Architecture(LIMITS["87"], 74, frozenset({"cp.async"})),
    "89": Architecture(LIMITS["89"], 84, frozenset({"cp.async", "fp8"})),
    "90": Architecture(LIMITS["90"], 84, _HOPPER),
    "90a": Architecture(LIMITS["90"], 84, _HOPPER | {"wgmma", "setmaxnreg"}),
    "100": Architecture(LIMITS["100"], 86, _HOPPER),
    "100a": Architecture(LIMITS["100"], 86, _HOPPER | {"setmaxnreg"}),
    "103": Architecture(LIMITS["103"], 88, _HOPPER),
    "103a": Architecture(LIMITS["103"], 88, _HOPPER | {"setmaxnreg"}),
    "110": Architecture(LIMITS["110"], 90, _HOPPER),
    "110a": Architecture(LIMITS["110"], 90, _HOPPER | {"setmaxnreg"}),
    "120": Architecture(LIMITS["120"], 87, _HOPPER),
    "121": Architecture(LIMITS["121"], 88, _HOPPER),
}


@dataclass(frozen=True, slots=True)
class Target:
    """``cpu``, or ``cuda:ARCH`` with ARCH such as 80, 90a: the sm_ name of the PTX target."""

    kind: str
    arch: str = ""

    @staticmethod
    @cache
    def parse(text: str) -> Target:
        """Read ``cpu`` or ``cuda:90a``; raises TargetError naming what exists."""
        kind, _, arch = str(text).partition(":")
        if text == "cpu" or (kind == "cuda" and arch in ARCHITECTURES):
            return Target(kind, arch)
        known = ["cpu", *(f"cuda:{a}" for a in ARCHITECTURES)]
        raise TargetError(f"unknown target {text!r}", hint="known targets: " + ", ".join(known))

    @staticmethod
    def of_architecture(name: str) -> Target:
        """The GPU that ``90``, ``sm90`` or ``sm_90`` names, with all the instructions that only it has: ``cuda:90a``.
        Names with a letter mean what they say. Raises TargetError naming what exists."""
        arch = name.lower().removeprefix("sm").removeprefix("_")
        own = f"{arch}a"
        return Target.parse(f"cuda:{own if own in ARCHITECTURES else arch}")

    @property
    def capability(self) -> int:
        """Compute capability times ten: 90 for sm_90a; 0 on the CPU."""
        return int(self.arch.rstrip("af")) if self.arch else 0

    @property
    def architecture(self) -> Architecture:
        """What code may use. For GPUs only."""
        return ARCHITECTURES[self.arch]

    @property
    def features(self) -> frozenset[str]:
        """What the instruction set has: see :class:`Architecture`; nothing on the CPU."""
        return self.architecture.features if self.arch else frozenset()

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one CTA may use; 0 on the CPU."""
        return self.limits.shared_bytes - self.limits.reserved_bytes if self.arch else 0

    @property
    def limits(self) -> MultiprocessorLimits:
        """What a multiprocessor has. For GPUs only."""
        return self.architecture.limits

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind
