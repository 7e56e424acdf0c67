"""NVIDIA GPUs: what PTX spells in its own way (the rest is ``targets/simt``), LLVM text to PTX, PTX to machine code."""

from ..assembler import find_ptxas
from .assemble import assemble
from .cubin import Cubin
from .kernel import PtxProgram, emit_ptx, lower_to_llvm, machine_for
from .machine import RULES

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
