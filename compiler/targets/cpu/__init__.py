"""The CPU target: tile IR to vectorised machine code of this computer, run by a thread pool."""

from . import catalogue as catalogue
from .launch import LoadedKernel, load, position
from .program import CpuProgram, emit_assembly, emit_object, lower_to_llvm

__all__ = [
    "CpuProgram",
    "LoadedKernel",
    "emit_assembly",
    "emit_object",
    "load",
    "lower_to_llvm",
    "position",
]
