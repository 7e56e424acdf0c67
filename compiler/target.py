"""What a variant is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .errors import TargetError


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
        if text == "cpu" or (kind == "cuda" and arch in _CUDA):
            return Target(kind, arch)
        known = ["cpu", *(f"cuda:{a}" for a in _CUDA)]
        raise TargetError(f"unknown target {text!r}", hint="known targets: " + ", ".join(known))

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
        """Shared memory one block may use (CUDA C++ Programming Guide, table of technical specifications)."""
        return _CUDA[self.arch] if self.arch else 0

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

# Opt-in shared memory per block in bytes.
_CUDA = {
    "80": 163 * 1024,
    "86": 99 * 1024,
    "89": 99 * 1024,
    "90": 227 * 1024,
    "90a": 227 * 1024,
    "100": 227 * 1024,
    "100a": 227 * 1024,
    "120": 99 * 1024,
}
