"""``tl.extra.cuda``: registers of NVIDIA GPUs that say where and when a program runs. Other targets refuse them."""

from __future__ import annotations

from typing import cast

from ..ir.types import I32, I64
from .assembly import inline_asm_elementwise
from .builtin import builtin
from .tensor import tensor

__all__ = ["gdc_launch_dependents", "gdc_wait", "globaltimer", "smid"]


@builtin
def gdc_wait() -> None:
    """Where a kernel would wait for those before it whose results it needs ("griddepcontrol.wait"). Nothing has to be
    done on any target: a kernel begins when the one before it on its stream has ended."""


@builtin
def gdc_launch_dependents() -> None:
    """Where a kernel would let the next one begin ("griddepcontrol.launch_dependents"): a hint, which is not taken."""


@builtin
def globaltimer() -> tensor:
    """Nanoseconds since some time in the past, an i64 scalar, read where it stands (PTX ISA, "%globaltimer"). The timer
    may tick once a microsecond or more rarely."""
    return _read("mov.u64 $0, %globaltimer;", "=l", I64)


@builtin
def smid() -> tensor:
    """The number of the multiprocessor that runs the program, an i32 scalar (PTX ISA, "%smid")."""
    return _read("mov.u32 $0, %smid;", "=r", I32)


def _read(asm: str, constraint: str, dtype: object) -> tensor:
    return cast(tensor, inline_asm_elementwise(asm, constraint, (), dtype, False, 1))
