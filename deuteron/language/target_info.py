"""``tl.target_info``: what a kernel is compiled for. Kernels read it as compile-time values, and so do functions that
they call while they are compiled; outside of them it is what one would be compiled for: the GPU of this machine, or
its CPU."""

from __future__ import annotations

from typing import Any

from deuteron.compiler.errors import DeviceError
from deuteron.compiler.language.context import active
from deuteron.compiler.target import Target

__all__ = [
    "cuda_capability_geq",
    "current_target",
    "is_cuda",
    "is_hip",
    "is_hip_cdna3",
    "is_hip_cdna4",
    "is_hip_gfx1250",
]


def current_target() -> Any:
    """The target of the current device as Triton's ``GPUTarget``; a CPU counts as the backend "cpu"."""
    from deuteron.compat.triton.backends.compiler import target_of  # lazy: Triton's names are wanted by few

    return target_of(_target())


def is_cuda() -> bool:
    """Whether there is a GPU of NVIDIA's."""
    return _target().kind == "cuda"


def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Whether there is a GPU of NVIDIA's of at least this compute capability."""
    return is_cuda() and _target().capability >= 10 * major + minor


def is_hip() -> bool:
    """False: there is no target for GPUs of AMD's."""
    return False


is_hip_cdna3 = is_hip_cdna4 = is_hip_gfx1250 = is_hip


def _target() -> Target:
    if (context := active()) is not None:
        return context.target or Target.parse("cpu")  # the interpreter's
    from deuteron.compiler.runtime.devices import get_device  # lazy: importing the language finds no devices

    try:
        return Target.parse(get_device("cuda").target)
    except DeviceError:
        return Target.parse("cpu")
