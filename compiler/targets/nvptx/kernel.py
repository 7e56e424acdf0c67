"""From a GPU function to the LLVM text of one kernel."""

from __future__ import annotations

from dataclasses import dataclass

from ...gpu.scratch import allocate
from ...ir.core import Function, FunctionParameter
from ...ir.types import Pointer
from ...options import Schedule
from ...target import Target
from . import (  # noqa: F401  (each registers its rules)
    atomics,
    casts,
    control,
    convert,
    debug,
    elementwise,
    maths,
    memory,
    mma,
    multiply_add,
    reduction,
    scan,
    shape,
)
from .lowering import Lowering
from .types import GLOBAL_POINTER, memory_type, register_type


@dataclass(frozen=True, slots=True)
class PtxProgram:
    """One kernel as LLVM text. ``shared_bytes``: dynamic shared memory that a launch must provide."""

    llvm: str
    name: str
    shared_bytes: int
    num_warps: int


def lower_to_llvm(function: Function, target: Target, schedule: Schedule) -> PtxProgram:
    """The LLVM module of ``function`` (from :func:`deuteron.compiler.gpu.lower_to_gpu`).

    Kernel parameters are those of the function, in order: pointers as 64-bit addresses, i1 as a byte.

    Raises:
        UnsupportedOp: an operation or element type has no lowering for ``target``.
    """
    allocation = allocate(function, target)
    state = Lowering(function, target, schedule, allocation)
    declared = [_parameter(state, p, f"%a{i}") for i, p in enumerate(function.parameters)]
    state.text.header = f"define ptx_kernel void @{function.name}({', '.join(declared)}) #0"
    state.lower_block(function.body)
    state.text.do("ret void")
    attributes = [f'"nvvm.reqntid"="{state.threads}"']
    if schedule.maxnreg is not None:
        attributes.append(f'"nvvm.maxnreg"="{schedule.maxnreg}"')
    state.module.tail.append(f"attributes #0 = {{ nounwind {' '.join(attributes)} }}")
    return PtxProgram(str(state.module), function.name, allocation.total, state.warps)


def _parameter(state: Lowering, parameter: FunctionParameter, name: str) -> str:
    """Declare a parameter and define its value."""
    elem = parameter.value.type.elem
    if isinstance(elem, Pointer):
        state.define(parameter.value, [name])
        align = f" align {parameter.divisibility}" if parameter.divisibility > 1 else ""
        return f"{GLOBAL_POINTER}{align} {name}"
    kept = memory_type(elem)
    if kept == register_type(elem):
        state.define(parameter.value, [name])
    else:
        truth = state.text.op(f"icmp ne {kept} {name}, 0")
        state.define(parameter.value, [truth])
    return f"{kept} {name}"
