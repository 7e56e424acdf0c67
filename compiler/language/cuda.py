"""``tl.extra.cuda``: registers of NVIDIA GPUs that say where and when a program runs, which other targets refuse, and
kernels that overlap with those around them, which other targets have no need of."""

from __future__ import annotations

from typing import cast

from ..errors import UnsupportedSyntax
from ..hardware import threads_of
from ..ir.types import I32, I64
from ..tile.memory import GridWait, LaunchDependents
from .assembly import inline_asm_elementwise
from .builtin import builtin
from .context import current
from .tensor import tensor

__all__ = ["gdc_launch_dependents", "gdc_wait", "globaltimer", "num_threads", "num_warps", "smid"]


@builtin
def gdc_wait() -> None:
    """Where a kernel waits for those before it on its stream whose results it needs (PTX ISA, "griddepcontrol.wait").
    Nothing that reads or writes memory moves across it. Without ``launch_pdl``, below sm_90 and on the CPU a kernel
    begins when the one before it has ended: there is nothing to wait for."""
    current().builder.emit(GridWait())


@builtin
def gdc_launch_dependents() -> None:
    """Where a kernel lets the next one begin, if that was launched with ``launch_pdl`` (PTX ISA,
    "griddepcontrol.launch_dependents"). The next one sees what this one writes only behind its ``gdc_wait``, which
    waits until this one has ended."""
    current().builder.emit(LaunchDependents())


@builtin
def globaltimer() -> tensor:
    """Nanoseconds since some time in the past, an i64 scalar, read where it stands (PTX ISA, "%globaltimer"). The timer
    may tick once a microsecond or more rarely."""
    return _read("mov.u64 $0, %globaltimer;", "=l", I64)


@builtin
def smid() -> tensor:
    """The number of the multiprocessor that runs the program, an i32 scalar (PTX ISA, "%smid")."""
    return _read("mov.u32 $0, %smid;", "=r", I32)


@builtin
def num_warps() -> int:
    """The warps of a program as the launch says, known at compile time; those that only bring operands of products do
    not count. Raises UnsupportedSyntax where there are none: on the CPU and in the interpreter."""
    context = current()
    if context.target is None or context.target.kind != "cuda" or context.num_warps is None:
        raise UnsupportedSyntax("programs have warps on GPUs only", hint="ask tl.target_info.is_cuda() first")
    context.told_warps = context.num_warps
    return context.num_warps


@builtin
def num_threads() -> int:
    """32 times :func:`num_warps`."""
    return threads_of(num_warps())


def _read(asm: str, constraint: str, dtype: object) -> tensor:
    return cast(tensor, inline_asm_elementwise(asm, constraint, (), dtype, False, 1))
