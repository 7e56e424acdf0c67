"""What a variant is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .errors import TargetError

KIB = 1024
#: Of every target: threads of a CTA, 32-bit registers of a thread, and those of a multiprocessor, all of which one
#: CTA may have (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
MOST_THREADS = 1024
MOST_REGISTERS = 255
REGISTER_FILE = 64 * KIB


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
    "120": MultiprocessorLimits(24, 48, 100 * KIB),
    "121": MultiprocessorLimits(24, 48, 100 * KIB),
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
        if text == "cpu" or (kind == "cuda" and arch in FEATURES):
            return Target(kind, arch)
        known = ["cpu", *(f"cuda:{a}" for a in FEATURES)]
        raise TargetError(f"unknown target {text!r}", hint="known targets: " + ", ".join(known))

    @staticmethod
    def of_architecture(name: str) -> Target:
        """The GPU that ``90``, ``sm90`` or ``sm_90`` names, with all the instructions that only it has: ``cuda:90a``.
        Names with a letter mean what they say. Raises TargetError naming what exists."""
        arch = name.lower().removeprefix("sm").removeprefix("_")
        own = f"{arch}a"
        return Target.parse(f"cuda:{own if own in FEATURES else arch}")

    @property
    def capability(self) -> int:
        """Compute capability times ten: 90 for sm_90a; 0 on the CPU."""
        return int(self.arch.rstrip("af")) if self.arch else 0

    @property
    def features(self) -> frozenset[str]:
        """What the instruction set has beyond sm_80's, by the names of :data:`FEATURES`."""
        return FEATURES.get(self.arch, frozenset())

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one CTA may use; 0 on the CPU."""
        return self.limits.shared_bytes - self.limits.reserved_bytes if self.arch else 0

    @property
    def limits(self) -> MultiprocessorLimits:
        """What a multiprocessor has. For GPUs only."""
        return LIMITS[str(self.capability)]

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind


#: ``cp.async``: asynchronous copies by threads; ``tma``: the copy engine with mbarriers; ``wgmma``: products of warp
#: groups; ``setmaxnreg``: registers that move between warp groups; ``fp8``: 8-bit floats in mma.sync;
#: ``griddepcontrol``: kernels that begin before the one before them has ended; ``vector_atomics``: additions to several
#: neighbours in memory at once (PTX ISA, "Target ISA Notes" of each instruction).
FEATURES: dict[str, frozenset[str]] = {
    "80": frozenset({"cp.async"}),
    "86": frozenset({"cp.async"}),
    "89": frozenset({"cp.async", "fp8"}),
    "90": frozenset({"cp.async", "fp8", "griddepcontrol", "tma", "vector_atomics"}),
    "90a": frozenset({"cp.async", "fp8", "griddepcontrol", "tma", "vector_atomics", "wgmma", "setmaxnreg"}),
    "100": frozenset({"cp.async", "fp8", "griddepcontrol", "tma", "vector_atomics"}),
    "100a": frozenset({"cp.async", "fp8", "griddepcontrol", "tma", "vector_atomics", "setmaxnreg"}),
    "120": frozenset({"cp.async", "fp8", "griddepcontrol", "tma", "vector_atomics"}),
}
