"""A variant made once more with the source lines of its instructions, which change none of them: for those who look at
PTX or know addresses in machine code. What runs is always the variant without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pipeline import Build, make_tile
from .variant import Variant

if TYPE_CHECKING:
    from ...gpu.scratch import GpuFunction


def lined_ptx(variant: Variant, gpu: GpuFunction | None = None) -> str:
    """The PTX of a variant for a GPU with ``.loc`` directives; ``gpu``: its GPU IR, if that is at hand.

    It has the instructions of the variant's own, but where loops are simplified before LLVM (products of warp groups)
    some may stand in another order. Raises CompilationError.
    """
    from ...gpu import lower_to_gpu  # lazy: a launch from the cache compiles nothing
    from ...llvm.lines import SourceLines  # lazy: as above
    from ...targets import nvptx  # lazy: loads LLVM

    if gpu is None:
        gpu = lower_to_gpu(make_tile(Build(variant)), variant.target, variant.schedule, frozenset(variant.denied))
    source = variant.source
    lines = SourceLines(source.name, source.locate(source.node))
    program = nvptx.lower_to_llvm(gpu, variant.target, variant.schedule, lines)
    return nvptx.emit_ptx(program, variant.target, variant.schedule)


def lined_cubin(variant: Variant) -> bytes:
    """The cubin of a variant with a table of source lines (``.debug_line``).

    Whoever wants to use it for code that ran compares the code of both: see :func:`lined_ptx`. Raises
    CompilationError, and TargetError where there is no assembler.
    """
    from ...targets import nvptx  # lazy: loads LLVM

    return nvptx.assemble(lined_ptx(variant), variant.target, variant.schedule, lines=True).image
