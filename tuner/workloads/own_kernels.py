"""The kernels that the tuner has itself, as text: of its built-in workloads, and those that check others."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import TYPE_CHECKING

from .spec import KernelText

if TYPE_CHECKING:
    from deuteron.compiler.source.kernel import KernelSource


def own_kernel(file: str, name: str) -> KernelText:
    """The jit function ``name`` of a file of ``kernels/``."""
    source = (files("deuteron.tuner.workloads") / "kernels" / file).read_text(encoding="utf-8")
    return KernelText(name, source, f"deuteron/tuner/workloads/kernels/{file}")


@functools.cache
def own_source(name: str) -> KernelSource:
    """The jit function of the file that is called as it is, ready to be compiled."""
    from deuteron.compiler.source.kernel import KernelSource  # lazy: help and submissions need no compiler

    kernel = own_kernel(f"{name}.py", name)
    return KernelSource.from_text(kernel.source, kernel.name, kernel.filename)
