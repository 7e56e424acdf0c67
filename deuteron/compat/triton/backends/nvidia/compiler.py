"""What programs ask of Triton's compiler for NVIDIA's GPUs: its options, its assembler and its errors."""

from __future__ import annotations

from deuteron.compat.triton import knobs
from deuteron.compat.triton.assembler import NvidiaTool, get_ptxas, version_text
from deuteron.compat.triton.backends.compiler import BaseBackend, GPUTarget, own_target
from deuteron.compiler import Schedule
from deuteron.compiler.errors import AssemblerError as PTXASError
from deuteron.compiler.errors import TargetError
from deuteron.compiler.targets.assembler import find_ptxas

__all__ = ["CUDABackend", "CUDAOptions", "NvidiaTool", "PTXASError", "get_ptxas", "get_ptxas_version"]

#: The options of a launch; ``dataclasses.fields`` says which there are.
CUDAOptions = Schedule


class CUDABackend(BaseBackend):
    """What compiles for NVIDIA's GPUs. Others cannot change its stages; ``deuteron compile --emit`` shows them.

    Raises:
        TargetError: the target is no GPU of NVIDIA's that deuteron compiles for.
    """

    def __init__(self, target: GPUTarget) -> None:
        if not self.supports_target(target):
            raise TargetError(f"CUDABackend is for the backend 'cuda', not {target.backend!r}")
        super().__init__(own_target(target))

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Whether it is a GPU of NVIDIA's."""
        return target.backend == "cuda"


def get_ptxas_version(arch: int | None = None) -> str:
    """What that assembler says of its version, or what ``knobs.nvidia.mock_ptx_version`` says that it does."""
    return knobs.nvidia.mock_ptx_version or version_text(find_ptxas())
