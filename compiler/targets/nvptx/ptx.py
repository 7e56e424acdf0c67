"""PTX from LLVM text, on any machine: no GPU and no CUDA toolkit is needed."""

from __future__ import annotations

from ...llvm.driver import Machine, compile_text
from ...options import Schedule
from ...target import Target
from .kernel import PtxProgram

TRIPLE = "nvptx64-nvidia-cuda"

#: The oldest PTX version (times ten) that has what the code generator uses on each architecture, so that the assembler
#: of an old toolkit or driver accepts the code. Eviction priorities need 7.4, fp8 on sm_89 8.4 (PTX ISA, release
#: notes).
_PTX_VERSION = {
    "80": 74,
    "86": 74,
    "89": 84,
    "90": 84,
    "90a": 84,
    "100": 86,
    "100a": 86,
    "120": 87,
}


def machine_for(target: Target) -> Machine:
    """The LLVM machine of a CUDA target."""
    return Machine(TRIPLE, f"sm_{target.arch}", f"+ptx{_PTX_VERSION[target.arch]}")


def emit_ptx(program: PtxProgram, target: Target, schedule: Schedule) -> str:
    """Optimise ``program`` and print it as PTX.

    The machine is attached while optimising: without it LLVM would run passes that break convergent code.
    """
    return compile_text(program.llvm, machine_for(target), "assembly", speed=1).decode()
