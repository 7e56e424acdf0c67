"""NVIDIA GPUs: GPU IR to LLVM text, LLVM text to PTX, PTX to machine code."""

from ..assembler import find_ptxas
from .assemble import Cubin, assemble
from .kernel import PtxProgram, lower_to_llvm
from .lowering import RULES
from .ptx import emit_ptx, machine_for

__all__ = [
    "RULES",
    "Cubin",
    "PtxProgram",
    "assemble",
    "emit_ptx",
    "find_ptxas",
    "lower_to_llvm",
    "machine_for",
]
