"""From a GPU function to LLVM text, and from that to PTX: on any machine, without a GPU or a CUDA toolkit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...gpu.asynchronous import Wgmma
from ...gpu.memory.scratch import GpuFunction
from ...launch_recipe import LaunchRecipe
from ...llvm.driver import Machine, compile_text
from ...llvm.hoist import hoist_invariants
from ...llvm.late import compute_late
from ...llvm.lines import SourceLines
from ...options import Schedule
from ...target import Target
from ...tile.assembly import InlineAssembly
from .. import simt
from ..assembler import newest_ptx
from . import assembly, copies, dependents, mma, pipes, wgmma  # noqa: F401  (each registers its rules)
from .machine import TRIPLE, PtxMachine


@dataclass(frozen=True, slots=True)
class PtxProgram:
    """One kernel as LLVM text. ``parameters``: the names of its own, in order; ``shared_bytes``: dynamic shared memory
    that a launch must provide; ``recipe``: what else a launch has to do."""

    llvm: str
    name: str
    parameters: tuple[str, ...]
    shared_bytes: int
    num_warps: int
    recipe: LaunchRecipe
    #: Nothing in its loops is left to move out, so LLVM may be brief.
    hoisted: bool = False
    #: The kernel's author wrote assembly, which may be of newer PTX than the code generator's.
    authored: bool = False


def lower_to_llvm(
    function: GpuFunction, target: Target, schedule: Schedule, lines: SourceLines | None = None
) -> PtxProgram:
    """The LLVM module of ``function`` (from :func:`deuteron.compiler.gpu.lower_to_gpu`); with ``lines`` the assembly
    says by ``.loc`` which line of the source each instruction comes from.

    Raises:
        UnsupportedOp: an operation or element type has no lowering for ``target``.
    """
    state = simt.lower_kernel(function, PtxMachine(target), schedule, lines)
    names = tuple(parameter.name for parameter in function.parameters)
    shared_bytes = function.allocation.total
    hoisted = _is_of_warp_groups(function) and len(state.module.functions) == 1
    text = state.module.written(hoist_invariants if hoisted else compute_late)
    authored = any(isinstance(op, InlineAssembly) for op in function.walk())
    return PtxProgram(text, function.name, names, shared_bytes, state.warps, function.recipe, hoisted, authored)


def _is_of_warp_groups(function: GpuFunction) -> bool:
    """Whether ``function`` has products of warp groups. The code around them is long and little is to be gained in it:
    without LLVM's loop passes their loops are as short, and the time to PTX is half. Loops around mma.sync, whose
    operands come by addresses, were up to a seventh longer."""
    return any(isinstance(op, Wgmma) for op in function.walk())


def machine_for(target: Target) -> Machine:
    """The LLVM machine of a CUDA target."""
    return Machine(TRIPLE, f"sm_{target.arch}", f"+ptx{target.architecture.ptx_version}")


def emit_ptx(program: PtxProgram, target: Target) -> str:
    """Optimise ``program`` and print it as PTX.

    The machine is attached while optimising: without it LLVM would run passes that break convergent code.
    """
    machine = machine_for(target)
    ptx = compile_text(program.llvm, machine, "assembly", speed=1, brief=program.hoisted, pairs=True).decode()
    return _as_new_as_is_read(ptx, target) if program.authored else ptx


def _as_new_as_is_read(ptx: str, target: Target) -> str:
    """The same code, which says that it is of the newest PTX that the assembler reads: it takes no instruction that is
    newer than what the code says."""
    newest = max(newest_ptx(), target.architecture.ptx_version)
    return _VERSION.sub(f".version {newest // 10}.{newest % 10}", ptx, count=1)


_VERSION = re.compile(r"^\.version [\d.]+$", re.MULTILINE)
