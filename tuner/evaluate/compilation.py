"""Compiling one configuration of a problem, and what is known of the result."""

from __future__ import annotations

import dataclasses
import hashlib
import math

from deuteron.compiler.errors import TargetError
from deuteron.compiler.launch_recipe import PROGRAMS
from deuteron.compiler.runtime.launch import compiled
from deuteron.compiler.runtime.launch.compiled import CompiledKernel
from deuteron.compiler.runtime.launch.guards import programs_per_sm
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.targets.cpu.processor import host_processor
from deuteron.profiler.occupancy import occupancy

from ..codec import canonical_json
from ..measure.instructions import instruction_mix
from ..measure.measurement import CodeFacts
from ..workloads import LaunchPlan, Problem


def compile_variant(
    problem: Problem, variant: LaunchPlan, target: str, processors: int | None = None
) -> CompiledKernel:
    """The kernel that a launch at the problem's sizes runs on a device with so many ``processors``, compiled through
    the disk cache that all processes share; raises the compiler's errors."""
    made = make_variant(problem.source, variant.signature, variant.constexprs, target, variant.schedule)
    known: dict[str, object] = dict(problem.scalars)
    if processors is not None:
        known[PROGRAMS] = programs_per_sm(variant.grid, processors)
    return compiled.compile_fitting(made, known)


def code_identity(kernel: CompiledKernel, variant: LaunchPlan) -> str:
    """Equal for configurations that run the same code on the same grid with the same launch parameters."""
    digest = hashlib.sha256(canonical_json(list(variant.grid)).encode())
    try:
        digest.update(kernel.code())
    except TargetError:
        digest.update(str(kernel.asm["ptx"]).encode())  # no assembler on this machine
    for name in ("num_warps", "shared_bytes", "recipe"):
        digest.update(str(getattr(kernel.metadata, name, None)).encode())
    return digest.hexdigest()


def static_metrics(kernel: CompiledKernel) -> dict[str, float]:
    """The numbers of the kernel's metadata that are known."""
    stages = kernel.metadata.stage_ms
    spent = {f"{stage}_ms": ms for stage, ms in stages.items()} | {"total_ms": sum(stages.values())}
    return {
        name: float(value)
        for name, value in (dataclasses.asdict(kernel.metadata) | spent).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def code_facts(kernel: CompiledKernel, variant: LaunchPlan) -> CodeFacts:
    """What a compiled variant tells about itself: the compiler's report, the assembler's, and the launch."""
    programs = math.prod(variant.grid)
    if kernel.kind == "cpu":
        return CodeFacts(programs, vector_bytes=host_processor().vector_bytes, code_bytes=len(kernel.code()))
    metadata = kernel.metadata
    recipe = metadata.recipe
    held = None
    if metadata.registers is not None and metadata.shared_bytes is not None:
        held = occupancy(
            kernel.target.partition(":")[2].rstrip("af"),
            threads=recipe.threads,
            registers=metadata.registers,
            shared_bytes=metadata.shared_bytes,
        )
    resident = None if held is None else held.blocks
    return CodeFacts(
        programs,
        threads=recipe.threads,
        registers=metadata.registers,
        spill_bytes=metadata.spills,
        stack_bytes=metadata.stack_bytes,
        shared_bytes=metadata.shared_bytes,
        slots=metadata.num_slots,
        resident_programs=recipe.occupancy if recipe.persistent else resident,
        resident_warps=None if held is None else held.warps,
        most_warps=None if held is None else held.most_warps,
        limiter=None if held is None else held.limiter,
        persistent=recipe.persistent,
        instructions=instruction_mix(str(kernel.asm["ptx"])),
        code_bytes=len(kernel.code()),
    )
