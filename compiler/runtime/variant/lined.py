"""A variant made once more with the source lines of its instructions: for those who look at PTX, or know addresses in
machine code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from .pipeline import build
from .variant import Variant

if TYPE_CHECKING:
    from ...gpu.memory.scratch import GpuFunction


def lined_ptx(variant: Variant, gpu: GpuFunction) -> str:
    """The PTX of a variant for a GPU with ``.loc`` directives; ``gpu``: its GPU IR.

    It has the instructions of the variant's own, but where loops are simplified before LLVM (products of warp groups)
    some may stand in another order. Raises CompilationError.
    """
    from ...llvm.lines import SourceLines  # lazy: a launch from the cache compiles nothing
    from ...targets import nvptx  # lazy: loads LLVM

    program = nvptx.lower_to_llvm(gpu, variant.target, variant.schedule, SourceLines.of(variant.source))
    return nvptx.emit_ptx(program, variant.target)


def lined_cubin(variant: Variant) -> bytes:
    """The cubin of a variant with a table of source lines (``.debug_line``).

    Whoever wants to use it for code that ran compares the code of both: see :func:`lined_ptx`. Raises
    CompilationError, and TargetError where there is no assembler.
    """
    return cast(bytes, build(replace(variant, lined=True), stop_after="cubin").artifacts["cubin"])
