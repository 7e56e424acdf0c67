"""The CPU target: tile IR to vectorised machine code of this computer, run by a thread pool."""

from . import control, debug, matmul, memory, reduction, views
from .launch import LoadedKernel, load
from .lower import statements
from .program import CpuProgram, emit_assembly, emit_object, lower_to_llvm

__all__ = [
    "CpuProgram",
    "LoadedKernel",
    "control",
    "debug",
    "emit_assembly",
    "emit_object",
    "load",
    "lower_to_llvm",
    "matmul",
    "memory",
    "reduction",
    "statements",
    "views",
]
