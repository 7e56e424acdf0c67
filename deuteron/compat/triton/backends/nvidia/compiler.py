"""What programs ask of Triton's compiler for NVIDIA's GPUs: its options, its assembler and its errors."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deuteron.compat.triton.backends.compiler import GPUTarget, own_target
from deuteron.compat.triton.compiler.compiler import TargetBackend
from deuteron.compiler import Schedule
from deuteron.compiler.errors import AssemblerError as PTXASError
from deuteron.compiler.errors import TargetError
from deuteron.compiler.targets.assembler import find_ptxas

__all__ = ["CUDABackend", "CUDAOptions", "NvidiaTool", "PTXASError", "get_ptxas"]

#: The options of a launch; ``dataclasses.fields`` says which there are.
CUDAOptions = Schedule


class CUDABackend(TargetBackend):
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


@dataclass(frozen=True)
class NvidiaTool:
    """A program of the CUDA toolkit: where it is, and its version as it says it, such as ``13.0``."""

    path: str
    version: str


def get_ptxas(arch: int | None = None) -> NvidiaTool:
    """The assembler that kernels are assembled with, which is the same for every architecture.

    Raises:
        TargetError: there is none, or it does not say its version.
    """
    path: Path = find_ptxas()
    said = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    release = re.search(r"release ([\d.]+),", said)
    if release is None:
        raise TargetError(f"{path} does not say its version", hint="set DEUTERON_PTXAS_PATH to a ptxas")
    return NvidiaTool(str(path), release[1])
