"""Compiling one configuration of a problem, and what is known of the result."""

from __future__ import annotations

import dataclasses
import hashlib

from deuteron.compiler.errors import TargetError
from deuteron.compiler.runtime.launch import compiled
from deuteron.compiler.runtime.launch.compiled import CompiledKernel
from deuteron.compiler.runtime.variant.variant import make_variant

from ..codec import canonical_json
from ..workloads import LaunchPlan, Problem


def compile_variant(problem: Problem, variant: LaunchPlan, target: str) -> CompiledKernel:
    """The kernel that a launch at the problem's sizes runs, compiled through the disk cache that all processes share;
    raises the compiler's errors."""
    made = make_variant(problem.source, variant.signature, variant.constexprs, target, variant.schedule)
    return compiled.compile_variant(made).fitting(problem.scalars)


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
    fields = dataclasses.asdict(kernel.metadata)
    return {
        name: float(value)
        for name, value in fields.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
