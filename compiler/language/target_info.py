"""``tl.target_info`` in a kernel: what it is compiled for, as compile-time values."""

from __future__ import annotations

from typing import NamedTuple

from .builtin import builtin
from .context import current

__all__ = [
    "cuda_capability_geq",
    "current_target",
    "is_cuda",
    "is_hip",
    "is_hip_cdna3",
    "is_hip_cdna4",
    "is_hip_gfx1250",
]


class CompiledFor(NamedTuple):
    """What Triton calls a target, in a kernel: ``arch`` is the compute capability times ten, 0 for a CPU."""

    backend: str
    arch: int
    warp_size: int


@builtin
def current_target() -> CompiledFor:
    """What the kernel is compiled for; the interpreter counts as a CPU."""
    target = current().target
    if target is None or target.kind != "cuda":
        return CompiledFor("cpu", 0, 1)
    return CompiledFor(target.kind, target.capability, 32)


@builtin
def is_cuda() -> bool:
    """Whether the kernel is compiled for a GPU of NVIDIA's."""
    target = current().target
    return target is not None and target.kind == "cuda"


@builtin
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Whether the kernel is compiled for a GPU of NVIDIA's of at least this compute capability."""
    target = current().target
    return target is not None and target.kind == "cuda" and target.capability >= 10 * int(major) + int(minor)


@builtin
def is_hip() -> bool:
    """False: there is no target for GPUs of AMD's."""
    return False


@builtin
def is_hip_cdna3() -> bool:
    """False, as :func:`is_hip`."""
    return False


@builtin
def is_hip_cdna4() -> bool:
    """False, as :func:`is_hip`."""
    return False


@builtin
def is_hip_gfx1250() -> bool:
    """False, as :func:`is_hip`."""
    return False
